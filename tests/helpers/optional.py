"""Packages that an installation may lack, and a GPU's often does: tests that need one are skipped there."""

import pytest

PACKAGES = {
    "plot": ["matplotlib"],
    "report": ["matplotlib"],
    "serve": ["starlette", "uvicorn", "prometheus_client", "py3langid", "python_multipart"],
    "export": ["ctranslate2"],  # for its own format
}


def skip_without_package_of(stage: str) -> None:
    """Skip the test if this stage, as transformer_mt.plot, needs a package that is not installed."""
    for package in PACKAGES.get(stage.rpartition(".")[2], []):
        pytest.importorskip(package)
