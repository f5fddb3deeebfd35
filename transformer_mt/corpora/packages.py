"""Imports packages that only some forms of a corpus need."""

import importlib
import sys
from types import ModuleType

from transformer_mt.errors import CorpusError


def needed(module: str, what: str, otherwise: str) -> ModuleType:
    """Import a module when it is needed: some take most of a second, and some machines do not have them.

    Raises CorpusError, which begins with `what` needs it and ends with what to do `otherwise`, if that fails.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise CorpusError(
            f"{what}, and the package that reads it cannot be imported ({error}). Install it: {sys.executable} -m pip "
            f"install {package}. Or {otherwise}"
        ) from None
