"""The stage `export`: writes a model in the format of another program."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, assert_never

from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.data.training_lines import TrainingLines
from transformer_mt.decoding.ctranslate2_engine import CTranslate2Engine, import_ctranslate2
from transformer_mt.decoding.engine import Engine, Sentence
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import ExportError
from transformer_mt.exporting.trained import Trained, random_sources, read_trained, validation_sources
from transformer_mt.settings.model import ModelConfig
from transformer_mt.settings.reading import dump_config
from transformer_mt.storage.checksums import SUMS, sums_of, write_sums
from transformer_mt.storage.files import write_whole
from transformer_mt.storage.json_text import read_json
from transformer_mt.storage.own_directory import replacing_directory
from transformer_mt.terminal import cli
from transformer_mt.wording import counted

Format = Literal["ctranslate2", "huggingface"]
QUANTIZATIONS = ["float32", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16"]

MARK = "export.json"  # marks a directory as an export, which may be replaced
COMPARED, COMPARED_OF_TEXT = 16, 100  # sentences of random pieces, and of text
LARGEST_DIFFERENCE = 1e-3  # of a token's log-probability in fp32, in nats; of one beyond -1, this share


def main(argv: Sequence[str] | None = None) -> int:
    """Write a model in the format of CTranslate2 or of Hugging Face's MarianMTModel."""
    parser = cli.parser(
        "export",
        "Reads a model, and writes it in another format, with its tokenizer, to a directory.\n"
        "  ctranslate2  for `translate --engine ctranslate2` and for CTranslate2 itself: model.bin, the vocabularies,\n"
        "               the tokenizer, and config.json, which has our defaults of decoding as translate_batch.\n"
        "               Before it is kept, its scores and greedy translations are compared with those of the model.\n"
        "  huggingface  for MarianMTModel and MarianTokenizer of transformers: only models with model.norm=post and\n"
        "               model.activation=relu or gelu.",
        "python -m transformer_mt.export runs/demo_en_de/model exported --format ctranslate2 --quantization int8",
    )
    parser.add_argument(
        "model", metavar="MODEL_DIR", type=Path, help="the directory of a model, such as runs/<name>/model"
    )
    parser.add_argument(
        "output", metavar="OUTPUT_DIR", type=Path, help="a directory that is new, empty or an earlier export"
    )
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="settings of decoding, which become the defaults of the export",
    )
    parser.add_argument("--format", choices=["ctranslate2", "huggingface"], required=True)
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        default="float32",
        help="type of the weights in the file, only for ctranslate2 (default: float32)",
    )
    arguments = parser.parse_intermixed_args(argv)
    if arguments.format == "huggingface" and arguments.quantization != "float32":
        raise ExportError("--quantization is only for --format ctranslate2: leave it out")
    export(arguments.model, arguments.output, arguments.format, arguments.quantization, arguments.overrides)
    return 0


def export(
    model_dir: Path, output_dir: Path, format: Format, quantization: str = "float32", overrides: Sequence[str] = ()
) -> None:
    """Write the whole directory, or nothing.

    Raises ExportError if the format cannot hold the model, if the exported model computes something else than the
    original, or if the directory holds something other than an export.
    """
    check_output(output_dir)
    translator = Translator.load(model_dir, "cpu")  # raises an error if something is missing or damaged
    trained = read_trained(model_dir, list(overrides))
    refuse(trained.config.model, model_dir, format)
    with replacing_directory(output_dir) as directory:
        match format:
            case "ctranslate2":
                write_ctranslate2(trained, directory, quantization)
                TrainingLines.load(model_dir).save(directory)
                compare(translator.engine, load_ctranslate2(trained, directory), trained, quantization)
            case "huggingface":
                from transformer_mt.exporting import huggingface

                huggingface.write(trained, directory)
            case _:
                assert_never(format)
        names = sorted(path.name for path in directory.iterdir())
        mark = {"format": format, "quantization": quantization, "model": str(model_dir), "files": names}
        write_whole(directory / MARK, json.dumps(mark, indent=2) + "\n")
        files = list(directory.iterdir())
        for file in files:  # some packages let nobody but the owner read what they write
            file.chmod((directory / MARK).stat().st_mode)
        write_sums(directory, sums_of(directory, [file.name for file in files]))
        check_output(output_dir)  # somebody may have put something there in the meantime
    megabytes = sum(path.stat().st_size for path in output_dir.iterdir()) / 1e6
    print(f"{output_dir}: {model_dir} for {format}, {quantization}, {megabytes:.1f} MB")


def check_output(output_dir: Path) -> None:
    """Raises ExportError if something stands there that `export` did not write: the whole directory is replaced."""
    if not output_dir.is_dir():
        if output_dir.exists():
            raise ExportError(f"{output_dir} exists and is not a directory: name another place")
        return
    names = sorted(path.name for path in output_dir.iterdir())
    ours = _exported_names(output_dir / MARK)
    if names and not ours:
        raise ExportError(
            f"{output_dir} is neither empty nor an export: it holds {names[0]}. Name another directory, or delete it"
        )
    if added := [name for name in names if name not in ours]:
        raise ExportError(
            f"{output_dir} is an earlier export, but {added[0]} was added to it, and exporting again would delete it: "
            "move it away, or name another directory"
        )


def _exported_names(mark: Path) -> set[str]:
    """The names of the files in the export that this file marks; empty if it is not such a mark."""
    try:
        content = read_json(mark)
        if not content.keys() >= {"format", "quantization", "model", "files"}:
            return set()
        return {MARK, SUMS, *map(str, content["files"])}
    except (OSError, ValueError, AttributeError, TypeError):
        return set()


def refuse(model: ModelConfig, model_dir: Path, format: Format) -> None:
    """Raises ExportError with the reason if the format cannot hold the model, or if its package is missing."""
    match format:
        case "ctranslate2":
            import_ctranslate2()
            from transformer_mt.exporting import ctranslate2

            reason = ctranslate2.refusal(model)
        case "huggingface":
            from transformer_mt.exporting import huggingface

            reason = huggingface.refusal(model)
        case _:
            assert_never(format)
    if reason:
        raise ExportError(f"{model_dir} cannot be exported as {format}: {reason}")


def write_ctranslate2(trained: Trained, directory: Path, quantization: str) -> None:
    """Write the files that CTranslate2 reads, and those that this package reads besides."""
    from transformer_mt.exporting import ctranslate2  # here, because it imports PyTorch

    ctranslate2.write(trained, directory, quantization)
    trained.tokenizer.save(directory)
    write_whole(directory / "config.yaml", dump_config(trained.config))


def load_ctranslate2(trained: Trained, directory: Path) -> Engine:
    """Load the export into the engine that `translate --engine ctranslate2` uses."""
    config = trained.config
    return CTranslate2Engine(directory, config.model.max_positions, config.decoding.alignment_layer, device="cpu")


def compare(ours: Engine, theirs: Engine, trained: Trained, quantization: str) -> None:
    """Print how much the scores and greedy translations of two engines differ, on text if it is there.

    Raises ExportError if log-probabilities in fp32 differ by more than LARGEST_DIFFERENCE, or are not finite.
    """
    from_text = validation_sources(trained, COMPARED_OF_TEXT)
    sentences = [Sentence(source) for source in from_text or random_sources(trained, COMPARED)]
    greedy = trained.config.decoding.model_copy(
        update={"beam_size": 1, "n_best": 1, "sampling": False, "max_extra_length": 10}
    )
    found, found_there = ours.translate(sentences, greedy), theirs.translate(sentences, greedy)
    if not all([*found, *found_there]):
        raise ExportError(
            "the model computes numbers that are not finite (infinity, or not a number), so the export cannot be "
            "compared with it; nothing was written. Average other checkpoints, or leave --quantization out"
        )
    translations, others = ([hypotheses[0].tokens for hypotheses in all_of_one] for all_of_one in (found, found_there))
    pairs = [(sentence.source, words) for sentence, words in zip(sentences, translations, strict=True)]
    log_probs = [
        both
        for our_T, their_T in zip(ours.score(pairs), theirs.score(pairs), strict=True)
        for both in zip(our_T, their_T, strict=True)
    ]
    difference = max(abs(a - b) for a, b in log_probs)
    # Rounding grows with the logits: a log-probability of -50 is as exact as its digits.
    unexplained = max(abs(a - b) / max(1.0, abs(a)) for a, b in log_probs)
    origin = f"the validation set in {trained.config.data_dir}" if from_text else "random pieces"
    print(
        f"compared on {counted(len(sentences), 'sentence')} of {origin}: log-probabilities of a piece differ by at "
        f"most {difference:.1e}; {_agreement(translations, others, trained.tokenizer)}"
    )
    if not from_text:
        print(
            f"random pieces, because {trained.config.data_dir} holds no validation set for this tokenizer: a model is "
            "unsure how to translate them, so that rounding changes far more of these translations than of real ones. "
            "What the export is worth, `python -m transformer_mt.evaluate OUTPUT_DIR --engine ctranslate2` says"
        )
    if quantization == "float32" and not unexplained <= LARGEST_DIFFERENCE:
        raise ExportError(
            f"the exported model computes something else: a log-probability differs by {difference:.1e}, which is more "
            "than rounding explains; nothing was written. Please report it"
        )


def _agreement(ours: list[list[int]], theirs: list[list[int]], tokenizer: Tokenizer) -> str:
    """How much the translations of two engines agree, in words."""
    from transformer_mt.evaluation.metrics import chrf  # here, because sacreBLEU is needed for nothing else

    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    if same == len(ours):
        return "greedy translations are the same for all"
    texts, others = ([tokenizer.decode_target(words) for words in of_one] for of_one in (ours, theirs))
    return (
        f"greedy translations are the same for {same}; with ours as references, chrF of all is "
        f"{chrf(others, texts):.1f} (100: the same text)"
    )


if __name__ == "__main__":
    sys.exit(cli.run(main))
