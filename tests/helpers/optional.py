"""Packages that an installation may lack, and a GPU's often does: tests that need one are skipped there."""

import pytest

PACKAGES = {
    "plot": "matplotlib",
    "report": "matplotlib",
    "serve": "starlette",
    "export": "ctranslate2",
}  # the latter for the format ctranslate2


def skip_without_package_of(stage: str) -> None:
    """Skip the test if this stage, as transformer_mt.plot, needs a package that is not installed."""
    if package := PACKAGES.get(stage.rpartition(".")[2]):
        pytest.importorskip(package)
