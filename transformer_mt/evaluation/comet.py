"""COMET (Rei et al. 2020), a trained metric. It needs the package unbabel-comet, which you install separately."""

import sys
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformer_mt.base.errors import EvaluationError
from transformer_mt.base.wording import counted
from transformer_mt.evaluation.metrics import MetricScore
from transformer_mt.storage.checksums import sha256
from transformer_mt.storage.records import versions

_INSTALL = (
    "`pip install --no-deps unbabel-comet`, then `pip install pytorch-lightning 'torchmetrics<0.11' entmax "
    "'jsonargparse==3.13.1' 'transformers<5' 'huggingface-hub<1.0' 'setuptools<81' scipy requests` (without --no-deps, "
    "pip would put an older NumPy in place of yours)"
)


class Comet:
    """A COMET model in a directory of this machine. Nothing is downloaded."""

    def __init__(self, path: Path, device: str = "auto") -> None:
        """`path` is a checkpoint, or the directory of a model, with checkpoints/model.ckpt and hparams.yaml.

        COMET runs on a GPU if there is one, unless `device` is cpu. The model is loaded when it is first used. Raises
        EvaluationError if a file of the model is missing, or if the package is not installed.
        """
        self.path, self.device = path, device
        self.checkpoint = path / "checkpoints" / "model.ckpt" if path.is_dir() else path
        self.directory = self.checkpoint.absolute().parent.parent
        for file in (self.checkpoint, self.directory / "hparams.yaml"):
            if not file.is_file():
                raise EvaluationError(
                    f"comet={path}: {file} is missing. Give the directory of a COMET model on this machine, with "
                    "checkpoints/model.ckpt and hparams.yaml, or the checkpoint itself; `evaluate` downloads no model"
                )
        if find_spec("comet") is None:
            raise EvaluationError(f"comet={path} needs the package unbabel-comet, which is not installed: {_INSTALL}")

    def score(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> MetricScore:
        """Return the mean of COMET's scores of the lines, times 100. Raises EvaluationError if the model fails."""
        rows = zip(sources, hypotheses, references, strict=True)
        samples = [{"src": source, "mt": hypothesis, "ref": reference} for source, hypothesis, reference in rows]
        try:
            from torch import cuda  # imported here, because it takes long

            gpus = [int(self.device.partition(":")[2] or 0)] if self.device != "cpu" and cuda.is_available() else []
            model = self._model
            print(f"COMET: scoring {counted(len(samples), 'line')}", file=sys.stderr, flush=True)
            found = model.predict(
                samples, batch_size=16, gpus=len(gpus), devices=gpus or None, progress_bar=False, num_workers=0
            )
            value = 100 * float(found["system_score"])
        except Exception as error:  # other packages may raise any error
            raise EvaluationError(
                f"comet={self.path}: COMET failed ({type(error).__name__}: {error}). The encoder's tokenizer and "
                "configuration (hparams.yaml gives its name) must be on this machine, too. If a package is missing: "
                f"{_INSTALL}"
            ) from error
        return MetricScore(value, self.signature)

    @cached_property
    def signature(self) -> str:
        """The model and settings that computed the scores, in the form of sacreBLEU's signatures."""
        name, package = self.directory.name.replace("|", "_"), versions(["unbabel-comet"])["unbabel-comet"]
        return f"nrefs:1|model:{name}|sha256:{sha256(self.checkpoint)[:16]}|dtype:fp32|scale:100|version:{package}"

    @cached_property
    def _model(self) -> Any:
        print(
            f"note: {self.checkpoint}: a COMET checkpoint is a Python pickle: loading it runs any code in it. Use only "
            "checkpoints from people you trust",
            file=sys.stderr,
        )
        from comet import load_from_checkpoint

        return load_from_checkpoint(str(self.checkpoint), local_files_only=True)
