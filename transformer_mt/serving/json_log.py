"""Writes the log of a server: each message is one line of JSON on standard error."""

import json
import logging
import sys
import time


def log_line(fields: dict[str, object]) -> None:
    """Write a line of JSON with the time to standard error."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **fields}
    print(json.dumps(line), file=sys.stderr, flush=True)


class JsonLines(logging.Handler):
    """Writes the warnings and errors of other parts in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        log_line({"level": record.levelname.lower(), "message": record.getMessage()})
