"""Trainer of the Transformer for machine translation.

>>> from transformer_mt import Translator
>>> Translator.load("runs/demo_en_de/model").translate(["The child is sleeping."])

The two names are imported when they are first used, so that `import transformer_mt` by itself is quick.
"""

import os
import sys


def end_at_once(signum: int, frame: object) -> None:
    """End a command at a signal while its modules are imported, where an exception could become another error."""
    try:
        os.write(2, b"interrupted\n" if signum == 2 else b"terminated\n")
    finally:
        os._exit(128 + signum)


# Only of a process that was started as `transformer-mt` or `python -m transformer_mt…`, which has "-m" as its name
# while this is imported. `terminal.cli.run` takes over when the modules are there.
_started = os.path.basename("".join(sys.orig_argv[-len(sys.argv) :][:1])).removeprefix("-m")
if _started == "transformer-mt" or (sys.argv[:1] == ["-m"] and _started.split(".")[0] == "transformer_mt"):
    import _signal  # type: ignore[import-not-found] # built in, so that Ctrl-C cannot come while it is imported

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it is ignored, as behind `nohup`
        _signal.signal(_signal.SIGINT, end_at_once)

from transformer_mt.version import __version__ as __version__  # noqa: E402 # only when Ctrl-C is taken care of

__all__ = ["Scorer", "Translator"]

TYPE_CHECKING = False  # which type checkers take for True
if TYPE_CHECKING:
    from transformer_mt.decoding.scorer import Scorer
    from transformer_mt.decoding.translator import Translator
else:  # hidden from type checkers, which would otherwise accept every name

    def __getattr__(name: str) -> object:
        """Import `Translator` or `Scorer` (PEP 562)."""
        if name == "Translator":
            from transformer_mt.decoding.translator import Translator

            return Translator
        if name == "Scorer":
            from transformer_mt.decoding.scorer import Scorer

            return Scorer
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
