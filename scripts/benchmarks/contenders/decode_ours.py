"""Ours in the decoding benchmark: text to text by Translator."""

from benchmarks.contenders import timed_decoding
from transformer_mt.decoding.translator import Translator

ALL_TOGETHER = 1_000_000_000  # positions of a batch: the most that the setting allows


def load(job: timed_decoding.Job) -> timed_decoding.Translate:
    settings = job["settings"]
    translator = Translator.load(
        job["model"],
        settings["device"],
        engine=settings["engine"],
        dtype=settings.get("dtype", "fp32"),
        quantize=settings.get("quantize", "none"),
        workers=settings.get("workers", 0),
    )

    def translate(lines: list[str], beam: int, size: int) -> list[str]:
        decoding = translator.decoding.model_copy(update={"beam_size": beam, "tokens_per_batch": size})
        return translator.translate(lines, decoding)

    def translate_sentences(lines: list[str], beam: int, size: int) -> list[str]:
        """The same in batches of `size` sentences, as peers count."""
        decoding = translator.decoding.model_copy(update={"beam_size": beam, "tokens_per_batch": ALL_TOGETHER})
        found = [""] * len(lines)
        for numbers in timed_decoding.batches_by_length(lines, size):
            batch = translator.translate([lines[number] for number in numbers], decoding)
            for number, text in zip(numbers, batch, strict=True):
                found[number] = text
        return found

    return translate_sentences if settings.get("in_sentences") else translate


if __name__ == "__main__":
    timed_decoding.main(load)
