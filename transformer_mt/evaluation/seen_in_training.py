"""Says which pairs of test sets stand in the training text of a run: scores of these tell nothing about new text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transformer_mt.data.encoded import EncodedCorpus
from transformer_mt.data.pair_places import described, places_of_pairs
from transformer_mt.data.prepared import data_digests, read_prepared
from transformer_mt.data.seen_sentences import Seen, Wanted, find_seen
from transformer_mt.data.tags import tagged
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.tags import Tags
from transformer_mt.evaluation.score_file import AlsoInTraining
from transformer_mt.evaluation.test_sets import TestSet
from transformer_mt.settings.corpus import CorpusConfig
from transformer_mt.wording import counted

_SHOWN = 5  # lines that are named


@dataclass(frozen=True)
class SeenTests:
    """What was found of each test set, and what to tell the user about it."""

    found: dict[str, AlsoInTraining]
    messages: list[str]


NOT_KNOWN = SeenTests({}, [])


def seen_in_training(
    data_dirs: Sequence[Path],
    tokenizer: Tokenizer,
    corpus: CorpusConfig,
    texts: Mapping[str, TestSet],
    trained_on: str | None = None,
) -> SeenTests:
    """Look for the test sets in the training text, which is in the first of `data_dirs` that has it.

    `corpus` is that of the run: the tags before its sources do not count. `trained_on` is the digest of the training
    data that run.json has; None if it is not known. Nothing is found if no directory has a training text that was
    encoded with this tokenizer, or if it is another text. Raises CorpusError if the text is damaged.
    """
    data_dir = next((each for each in data_dirs if _has_training_text(each, tokenizer)), None)
    if data_dir is None:
        return NOT_KNOWN
    if trained_on is not None and data_digests(data_dir)["train"] != trained_on:
        return SeenTests(
            {},
            [
                f"note: {data_dir} was prepared anew since the run was trained, and holds another training text now: "
                "whether the test sets stand in that of the run is not known"
            ],
        )
    encoded = EncodedCorpus.load(data_dir / "train")
    wanted, tags = Wanted.in_corpus(encoded), Tags.of(corpus)
    before_sources = dict.fromkeys(text.tag for text in corpus.training_corpora)
    for name, text in texts.items():
        plain = [tags.parted(line)[1] for line in text.sources]
        for tag in before_sources:
            wanted.add_sources(name, tokenizer.encode_source([tagged(tag, line) for line in plain]))
        for lines in text.references:
            wanted.add_targets(name, tokenizer.encode_target(lines))
    seen = find_seen(encoded, wanted)
    found = {name: _of_test_set(name, seen) for name in texts}
    notes = [_message(name, texts[name], each, seen, data_dir) for name, each in found.items() if each.sources]
    return SeenTests(found, notes)


def _has_training_text(data_dir: Path, tokenizer: Tokenizer) -> bool:
    if not (data_dir / "train").is_dir():
        return False
    prepared = read_prepared(data_dir)
    return prepared is not None and prepared.tokenizer_digest == tokenizer.digest


def _of_test_set(name: str, seen: Seen) -> AlsoInTraining:
    sources, pairs = (sorted(line for of, line in lines if of == name) for lines in (seen.sources, seen.pairs))
    return AlsoInTraining(sources=len(sources), pairs=len(pairs), source_lines=sources, pair_lines=pairs)


def _message(name: str, text: TestSet, found: AlsoInTraining, seen: Seen, data_dir: Path) -> str:
    kind, lines = ("pairs", found.pair_lines) if found.pairs else ("sources", found.source_lines)
    first = (seen.pairs if found.pairs else seen.sources)[name, lines[0]]
    place = described(places_of_pairs(data_dir, np.array([first])))
    shown = ", ".join(map(str, lines[:_SHOWN])) + (", …" if len(lines) > _SHOWN else "")
    begin = "warning" if found.pairs else "note"
    return (
        f"{begin}: {name}: {found.pairs:,} of {counted(len(text.sources), 'pair')} and {found.sources:,} of the "
        f"sources also stand in the training text of the run ({data_dir / 'train'}). The {kind} are on "
        f"line{'s' if len(lines) > 1 else ''} {shown} of the test set; line {lines[0]} is {place}. Scores of text that "
        "was trained on tell little about new text"
    )
