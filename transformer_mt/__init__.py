"""Trainer of the Transformer for machine translation.

>>> from transformer_mt import Translator
>>> Translator.load("runs/demo_en_de/model").translate(["The child is sleeping."])

The two names are imported when they are first used, so that `import transformer_mt` by itself is quick.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Scorer", "Translator"]

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
