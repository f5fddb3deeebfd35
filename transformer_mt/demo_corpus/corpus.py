"""Makes the corpus, with as many different sentence pairs as asked for, and writes its files."""

import os
from pathlib import Path

from transformer_mt.demo_corpus.dice import Dice
from transformer_mt.demo_corpus.sentences import SENTENCES, joined
from transformer_mt.errors import UserError
from transformer_mt.storage.files import write_whole

OUTPUT = Path("data/demo_corpus")  # the place that configs/demo_en_de.yaml names


def corpus(num_pairs: int, seed: int, most: int = 1) -> list[tuple[str, str]]:
    """Return pairs of an English sentence and its German translation. No sentence of either language comes twice.

    A longer corpus begins with the shorter one of the same seed. With `most` above 1, sentences are longer: each has up
    to `most` statements.
    """
    dice = Dice(seed)
    german_of: dict[str, str] = {}
    seen: set[str] = set()
    while len(german_of) < num_pairs:
        pair = joined(dice, most) if most > 1 else dice.pick(SENTENCES)(dice)
        known = german_of.get(pair.english)
        assert known in (None, pair.german), f"{pair.english} is both {known} and {pair.german}"
        if pair.german not in seen:
            german_of[pair.english] = pair.german
            seen.add(pair.german)
    return list(german_of.items())


def files(train: int, valid: int, test: int, seed: int, most: int = 1) -> dict[str, bytes]:
    """Return the content of each file by its name. Test is made first, so it is the same for every size of train."""
    pairs = corpus(test + valid + train, seed, most)
    parts = {"test": pairs[:test], "valid": pairs[test : test + valid], "train": pairs[test + valid :]}
    contents = {}
    for part, chosen in parts.items():
        for column, language in enumerate(("en", "de")):
            contents[f"{part}.{language}"] = "".join(pair[column] + "\n" for pair in chosen).encode()
    return contents


def write_corpus(
    output: Path = OUTPUT, train: int = 20000, valid: int = 500, test: int = 500, seed: int = 1, most: int = 1
) -> None:
    """Write the files with these numbers of sentence pairs into a folder, unless they exist already.

    Raises UserError if they cannot be written, or if there are other files with these names.
    """
    sizes = f"{train} train, {valid} valid and {test} test pairs"
    paths = {output / name: content for name, content in files(train, valid, test, seed, most).items()}
    if all(path.is_file() and path.read_bytes() == content for path, content in paths.items()):
        print(f"{output} is already there and whole: {sizes}; nothing to do.", flush=True)
        return
    for path, content in paths.items():
        if os.path.lexists(path) and not (path.is_file() and path.read_bytes() == content):
            raise UserError(
                f"{path}: exists already, and is not the file of a corpus of {sizes}; nothing was changed. Move it "
                "away, or choose another folder"
            )
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{output}: cannot be made ({error.strerror}); choose another folder") from None
    for path, content in paths.items():
        write_whole(path, content)
    print(f"Wrote {output}: {sizes} of synthetic English and German.", flush=True)
