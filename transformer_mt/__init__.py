"""Trainer of the Transformer for machine translation.

>>> from transformer_mt import Translator
>>> Translator.load("runs/demo_en_de/model").translate(["The child is sleeping."])

`Translator` and `Scorer` are imported at their first use, so that `import transformer_mt` alone is quick.
"""

import os
import sys

# On CPUs, oneDNN and its part in PyTorch each keep the code of the last 1,024 products, of 0.3 MB, for every thread. As
# nearly every batch has another shape, that took 1 GB and was seldom used.
COMPILED_PRODUCTS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}
for _name, _number in COMPILED_PRODUCTS.items():
    os.environ.setdefault(_name, _number)


def end_at_once(signum: int, frame: object) -> None:
    """End the process at a signal that comes during the imports: there, an exception could turn into another error."""
    try:
        os.write(2, b"interrupted\n" if signum == 2 else b"terminated\n")
    finally:
        os._exit(128 + signum)


# Only in a process started as `transformer-mt` or `python -m transformer_mt…` (its name is "-m" during this import).
# When all modules are imported, `terminal.cli.run` replaces this handler.
_started = os.path.basename("".join(sys.orig_argv[-len(sys.argv) :][:1])).removeprefix("-m").removesuffix(".exe")
if _started == "transformer-mt" or (sys.argv[:1] == ["-m"] and _started.split(".")[0] == "transformer_mt"):
    import _signal  # type: ignore[import-not-found] # built in, so Ctrl-C cannot interrupt this import

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it is ignored, as behind `nohup`
        _signal.signal(_signal.SIGINT, end_at_once)

from transformer_mt.version import __version__ as __version__  # noqa: E402 # after the handler of Ctrl-C is set

__all__ = ["Scorer", "Translator"]

TYPE_CHECKING = False  # type checkers assume True
if TYPE_CHECKING:
    from transformer_mt.decoding.scorer import Scorer
    from transformer_mt.decoding.translator import Translator
else:  # hidden from type checkers, which would otherwise accept every name

    def __getattr__(name: str) -> object:
        """Import `Translator` or `Scorer` (PEP 562)."""
        if name in __all__:
            from importlib import import_module

            return getattr(import_module(f"transformer_mt.decoding.{name.lower()}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
