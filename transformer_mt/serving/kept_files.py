"""Keeps translations of files in memory, for a while and up to a size, for those who know their random names."""

import secrets
import time

SECONDS = 600.0
MOST_BYTES = 2**26


class KeptFiles:
    """The newest files, for ten minutes, up to 64 MiB together."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[float, bytes]] = {}

    def keep(self, content: bytes, ending: str) -> str:
        """Keep a file. Returns its name, which is random and has this ending."""
        name = secrets.token_urlsafe(24) + ending
        self._files[name] = time.monotonic() + SECONDS, content
        while sum(len(kept) for _, kept in self._files.values()) > MOST_BYTES:
            del self._files[next(iter(self._files))]  # the oldest
        self._forget()
        return name

    def get(self, name: str) -> bytes | None:
        """Return a file, or None if it is not kept (any longer)."""
        self._forget()
        return self._files[name][1] if name in self._files else None

    def _forget(self) -> None:
        now = time.monotonic()
        self._files = {name: file for name, file in self._files.items() if file[0] > now}
