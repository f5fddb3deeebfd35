"""CTranslate2 in the decoding benchmark: text to text, by its Translator and sentencepiece."""

import sys
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from benchmarks.contenders import timed_decoding

# It imports PyTorch if it finds it, only for its converters; that would add 2 s to its start.
sys.modules["torch"] = None  # type: ignore[assignment]
import ctranslate2  # noqa: E402


def load(job: timed_decoding.Job) -> timed_decoding.Translate:
    directory, settings = Path(job["model"]), job["settings"]
    models = sorted(directory.glob("tokenizer*.model"))  # one, or that of the source before that of the target
    source, target = (SentencePieceProcessor(model_file=str(models[i])) for i in (0, -1))
    translator = ctranslate2.Translator(
        str(directory),
        device=settings["device"],
        compute_type=settings["compute_type"],
        inter_threads=settings["translators"],
        intra_threads=job["threads"] // settings["translators"],
    )

    def translate(lines: list[str], beam: int, size: int) -> list[str]:
        pieces = source.encode(lines, out_type=str)
        results = translator.translate_batch(
            pieces,
            max_batch_size=size,
            beam_size=beam,
            length_penalty=job["length_exponent"],
            max_decoding_length=max(map(len, pieces)) + job["max_extra_length"],
            min_decoding_length=0,
        )
        return [target.decode_pieces(result.hypotheses[0]) for result in results]

    return translate


if __name__ == "__main__":
    timed_decoding.main(load)
