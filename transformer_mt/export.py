"""The stage `export`: writes a model in the format of another program."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

import numpy as np

from transformer_mt.base.errors import UserError
from transformer_mt.decoding.ctranslate2_engine import CTranslate2Engine, import_ctranslate2
from transformer_mt.decoding.engine import Engine
from transformer_mt.decoding.loading import check_files
from transformer_mt.decoding.translator import Translator
from transformer_mt.exporting.trained_model import SUPPORTED, Trained, random_pairs, read_trained, unsupported_setting
from transformer_mt.storage.checksums import SUMS, read_sums, write_sums
from transformer_mt.storage.files import write_json
from transformer_mt.storage.own_directory import replacing_directory
from transformer_mt.terminal import cli

Format = Literal["ctranslate2", "huggingface"]
QUANTIZATIONS = ["float32", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16"]

MARK = "export.json"  # marks a directory as an export, which `export` may replace
COMPARED = 16  # pairs of random pieces
LARGEST_DIFFERENCE = 1e-3  # of a token's log-probability in fp32, in nats; below -1 nat, relative to its size


def main(argv: Sequence[str] | None = None) -> int:
    """Write a model in the format of CTranslate2 or of Hugging Face's MarianMTModel."""
    parser = cli.parser(
        "export",
        "Reads a model, and writes it in another format, with its tokenizer, to a directory.\n"
        "  ctranslate2  for `translate --engine ctranslate2` and for CTranslate2 itself: model.bin, the vocabularies,\n"
        "               the tokenizer, and config.json, with the model's decoding settings as arguments of\n"
        "               translate_batch.\n"
        "  huggingface  for MarianMTModel and MarianTokenizer of transformers: only models with model.norm=post and\n"
        "               model.activation=relu, gelu or swish.\n"
        "  argos        an .argosmodel, which Argos Translate and LibreTranslate install: one file, which contains an\n"
        "               export for CTranslate2. The model must have one vocabulary for both languages.",
        "python -m transformer_mt.export runs/demo_en_de/model exported --format ctranslate2 --quantization int8",
    )
    cli.add_model(parser)
    about = "a new or empty directory, or an earlier export; for argos, a file that ends in .argosmodel"
    parser.add_argument("output", metavar="OUTPUT_DIR", type=Path, help=about)
    cli.add_settings(parser, "settings of decoding, which become the defaults of the export")
    parser.add_argument("--format", choices=[*get_args(Format), "argos"], required=True)
    about = "type of the weights in the file, not for huggingface (default: float32)"
    parser.add_argument("--quantization", choices=QUANTIZATIONS, default="float32", help=about)
    arguments = parser.parse_intermixed_args(argv)
    if arguments.format == "huggingface" and arguments.quantization != "float32":
        raise UserError("--quantization is not for --format huggingface: leave it out")
    output, format, quantization = arguments.output, arguments.format, arguments.quantization
    if format == "argos":
        export_argos(arguments.model, output, quantization, arguments.overrides)
    else:
        export(arguments.model, output, format, quantization, arguments.overrides)
    megabytes = sum(path.stat().st_size for path in (output.iterdir() if output.is_dir() else [output])) / 1e6
    print(f"{output}: {arguments.model} for {format}, {quantization}, {megabytes:.1f} MB")
    return 0


def export(
    model_dir: Path, output_dir: Path, format: Format, quantization: str = "float32", overrides: Sequence[str] = ()
) -> None:
    """Write the complete directory, or nothing.

    Raises UserError if the format does not support the model, if the exported model computes other numbers than the
    original, or if the directory contains anything but an export.
    """
    check_output(output_dir)
    translator = Translator.load(model_dir, "cpu")  # raises an error if something is missing or damaged
    trained = read_trained(model_dir, list(overrides))
    # Imported here, because they import PyTorch, and CTranslate2 may not be installed.
    if format == "huggingface":
        from transformer_mt.exporting import huggingface

        reason = huggingface.unsupported(trained.config.model)
    else:
        import_ctranslate2()
        from transformer_mt.exporting import ctranslate2_format

        reason = unsupported_setting(trained.config.model, SUPPORTED)
    if reason:
        raise UserError(f"{model_dir} cannot be exported as {format}: {reason}")
    with replacing_directory(output_dir) as directory:
        if format == "huggingface":
            huggingface.write(trained, directory)
        else:
            ctranslate2_format.write(trained, directory, quantization)
            settings = trained.config.model.max_positions, trained.config.decoding.alignment_layer
            exported = CTranslate2Engine(directory, *settings, device="cpu")
            compare(translator.engine, exported, trained, quantization)
        write_json(directory / MARK, {"format": format, "quantization": quantization, "model": str(model_dir)})
        files = list(directory.iterdir())
        for file in files:  # some packages write files that only the owner may read
            file.chmod((directory / MARK).stat().st_mode)
        write_sums(directory, [file.name for file in files])
        check_output(output_dir)  # again: someone may have put a file there in the meantime


def export_argos(model_dir: Path, output: Path, quantization: str, overrides: Sequence[str]) -> None:
    """Export for CTranslate2 into a temporary directory, and pack it as a file. Raises the UserErrors of `export`."""
    import_ctranslate2()
    from transformer_mt.exporting.ctranslate2_format import ARGOS_ENDING, pack_argos, unsupported_in_argos

    if output.suffix != ARGOS_ENDING or output.is_dir():
        better = output.parent / f"{output.stem or 'model'}{ARGOS_ENDING}"
        raise UserError(f"{output}: --format argos writes a file that ends in {ARGOS_ENDING}, such as {better}")
    check_files(model_dir, "torch")
    trained = read_trained(model_dir, list(overrides))
    if reason := unsupported_in_argos(trained):
        raise UserError(f"{model_dir} cannot be exported as argos: {reason}")
    if not output.parent.is_dir():
        raise UserError(f"{output.parent} is no directory: make it, or choose another place for the file")
    with TemporaryDirectory() as temporary:
        directory = Path(temporary) / "ctranslate2"
        export(model_dir, directory, "ctranslate2", quantization, overrides)
        pack_argos(directory, trained, output)


def check_output(output_dir: Path) -> None:
    """Raises UserError if a file there is not from `export`, which replaces the whole directory."""
    if not output_dir.is_dir():
        if output_dir.exists():
            raise UserError(f"{output_dir} exists and is not a directory: give another directory")
        return
    names, ours = sorted(path.name for path in output_dir.iterdir()), set()
    with suppress(OSError, ValueError):  # a directory without readable checksums is not an export
        ours = {SUMS, *read_sums(output_dir)}
    if foreign := [name for name in names if MARK not in ours or name not in ours]:
        raise UserError(
            f"{output_dir} contains {foreign[0]}, which `export` did not write and would delete: move it away, or give "
            "another directory"
        )


def compare(ours: Engine, theirs: Engine, trained: Trained, quantization: str) -> None:
    """Compare the log-probabilities of random pieces. Raises UserError if they are not finite, or differ in fp32."""
    pairs = random_pairs(trained, COMPARED)
    ours_N, theirs_N = (np.concatenate(engine.score(pairs)) for engine in (ours, theirs))
    if not (np.isfinite(ours_N) & np.isfinite(theirs_N)).all():
        raise UserError(
            "the model or its export computes numbers that are not finite (infinity, or not a number), so they cannot "
            "be compared; nothing was written. Average other checkpoints, or leave --quantization out"
        )
    # The rounding error grows with the size of the logits, so large differences are taken relative to that size.
    difference_N = np.abs(ours_N - theirs_N)
    unexplained_N = difference_N / np.maximum(1.0, np.abs(ours_N))
    if quantization == "float32" and unexplained_N.max() > LARGEST_DIFFERENCE:
        raise UserError(
            f"the exported model computes other numbers: a log-probability differs by {difference_N.max():.1e}, which "
            "is more than rounding explains; nothing was written. Please report this"
        )


if __name__ == "__main__":
    sys.exit(cli.run(main))
