"""Ours in the decoding benchmark: text to text by Translator."""

from benchmarks.contenders import timed_decoding
from transformer_mt.decoding.translator import Translator


def load(job: timed_decoding.Job) -> timed_decoding.Translate:
    settings = job["settings"]
    translator = Translator.load(
        job["model"],
        "cpu",
        engine=settings["engine"],
        quantize=settings["quantize"],
        workers=settings["workers"],
        compile=settings.get("compile", False),
    )

    def translate(lines: list[str], beam: int, size: int) -> list[str]:
        decoding = translator.decoding.model_copy(update={"beam_size": beam, "tokens_per_batch": size})
        return translator.translate(lines, decoding)

    return translate


if __name__ == "__main__":
    timed_decoding.main(load)
