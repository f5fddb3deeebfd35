"""Directories of Hugging Face's MarianMT, such as those of OPUS-MT, become models of this package.

The architecture is the same (Junczys-Dowmunt et al. 2018): only the names and the order of numbers and pieces differ.
`as_model_dir` recognises such a directory wherever a model directory is expected.
"""

from pathlib import Path


def as_model_dir(path: Path) -> Path:
    """Return the model directory that is made of a MarianMT directory, once, in the user's cache; other paths as given.

    Raises CheckpointError or TokenizerError, which name the file, if it is damaged or this package cannot run it.
    """
    if not (path / "config.json").is_file() or (path / "config.yaml").is_file():
        return path
    from transformer_mt.marian.marian_conversion import converted  # imports PyTorch, which other models may not need

    return converted(path)
