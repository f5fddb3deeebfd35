"""Writes the text of the training benchmark in the form that each contender reads.

B sentences  S source positions  T target positions  V vocabulary
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.contenders.train_plain import NnTransformer
from benchmarks.training_process import Race
from transformer_mt.base.languages import BOS, EOS, PAD
from transformer_mt.batches.batching import epoch_batches
from transformer_mt.batches.encoded import EncodedCorpus, EncodedText
from transformer_mt.corpora.opening import open_corpus
from transformer_mt.models.transformer import Transformer
from transformer_mt.preparing.shards import write_encoded
from transformer_mt.settings.corpus_settings import PairedText
from transformer_mt.settings.model_settings import TransformerConfig
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.storage.weights import model_weights, save_weights
from transformer_mt.text.tokenizer import Tokenizer

NUM_PAIRS = 50_000  # of random words
LONGEST = 150  # pieces of a side, without its EOS

Row = tuple[list[int], list[int]]  # ids of a pair, each side ending in EOS


def random_rows(vocab_size: int) -> Iterator[Row]:
    """Pairs of random words from a fixed seed.

    Lengths are log-normal with a mean of 27 pieces; a target is about as long as its source.
    """
    random = np.random.default_rng(1)
    log_lengths = random.normal(3.1, 0.6, (NUM_PAIRS, 1)) + random.normal(0.0, 0.15, (NUM_PAIRS, 2))
    lengths = np.exp(log_lengths).clip(1, LONGEST).astype(int).tolist()
    words = random.integers(EOS + 1, vocab_size, NUM_PAIRS + LONGEST).tolist()
    return (([*words[i : i + s], EOS], [*words[i : i + t], EOS]) for i, (s, t) in enumerate(lengths))


def text_rows(source: Path, target: Path, vocab_size: int) -> tuple[Iterator[Row], list[str]]:
    """The encoded pairs of two files aligned by line, and the pieces of a vocabulary learnt from them, in order.

    Blank and long pairs are left out. Raises CorpusError or TokenizerError.
    """
    corpus = open_corpus(PairedText(source=str(source), target=str(target)))
    sources, targets = map(list, zip(*corpus.pairs(), strict=True))
    tokenizer = Tokenizer.train(sources, targets, TokenizerConfig(vocab_size=vocab_size))
    encoded = zip(tokenizer.encode_source(sources), tokenizer.encode_target(targets), strict=True)
    rows = ((s, t) for s, t in encoded if min(len(s), len(t)) > 1 and max(len(s), len(t)) <= LONGEST + 1)
    return rows, [tokenizer.source.id_to_piece(i) for i in range(vocab_size)]


def write_race(race: Race, text: Sequence[Path]) -> None:
    """Write all files of the race's directory, of the source and target file in `text`, or of random words."""
    pieces = [f"w{i}" for i in range(race.vocab_size)]
    if text:
        rows, pieces = text_rows(text[0], text[1], race.vocab_size)
    else:
        rows = random_rows(race.vocab_size)
    write_encoded(race.directory / "corpus", rows, race.vocab_size, race.vocab_size)
    corpus = EncodedCorpus.load(race.directory / "corpus")
    (race.directory / "pieces.txt").write_text("".join(f"{p}\n" for p in pieces[EOS + 1 :]), encoding="utf-8")
    for name, side in (("source", corpus.source), ("target", corpus.target)):
        with (race.directory / f"train.{name}").open("w", encoding="utf-8") as file:
            file.writelines(_line(side, i, pieces) for i in range(len(corpus)))
    torch.manual_seed(race.training.seed)
    ours = Transformer(race.model, race.vocab_size, race.vocab_size)
    save_weights(model_weights(ours), race.directory / "ours.safetensors")
    torch.save(nn_transformer_weights(ours, race.model, race.vocab_size), race.directory / "weights.pt")
    torch.save(padded_batches(corpus, race), race.directory / "batches.pt")
    content = {"model": race.model.model_dump(), "training": race.training.model_dump()}
    content |= {name: getattr(race, name) for name in ("vocab_size", "warm_up", "updates", "threads", "device")}
    (race.directory / "race.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def nn_transformer_weights(ours: Transformer, config: TransformerConfig, vocab_size: int) -> dict[str, Tensor]:
    """Our weights and positions under their names in NnTransformer.

    The parameters of both stand in the same order, and keys, queries and values in the same rows.
    """
    names = [name for name, _ in NnTransformer(config.model_dump(), vocab_size).named_parameters()]
    weights = dict(zip(names, (parameter.detach() for parameter in ours.parameters()), strict=True))
    return weights | {"positions_TD": ours.positions.table_TD}


def padded_batches(corpus: EncodedCorpus, race: Race) -> list[list[Tensor]]:
    """The batches that ours trains on, in order, each as source BS, decoder input BT and labels BT."""
    training = race.training
    epochs = (epoch_batches(corpus, training.tokens_per_batch, training.seed, epoch) for epoch in count())
    batches = []
    for pairs in islice(chain.from_iterable(epochs), race.last_update):
        source_BS, labels_BT = (_padded(side, pairs.tolist()) for side in (corpus.source, corpus.target))
        shifted_BT = labels_BT.roll(1, dims=1)
        decoder_input_BT = shifted_BT.masked_fill(shifted_BT == EOS, PAD)
        decoder_input_BT[:, 0] = BOS
        batches.append([source_BS, decoder_input_BT, labels_BT])
    return batches


def _padded(side: EncodedText, pairs: Iterable[int]) -> Tensor:
    sentences = [torch.from_numpy(_ids(side, i).astype(np.int64)) for i in pairs]
    return pad_sequence(sentences, batch_first=True, padding_value=PAD)


def _ids(side: EncodedText, i: int) -> np.ndarray:
    return side.ids[side.offsets[i] : side.offsets[i + 1]]


def _line(side: EncodedText, i: int, pieces: Sequence[str]) -> str:
    return " ".join(pieces[j] for j in _ids(side, i)[:-1]) + "\n"
