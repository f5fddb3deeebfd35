"""A tokenizer that grows keeps its pieces, and the model that had it goes on from the same weights."""

from itertools import accumulate
from pathlib import Path

import pytest
import torch
import yaml
from helpers.messages import message, says
from helpers.tiny import demo_pairs, status_and_error, train_tiny, weights_at, write_experiment
from safetensors.torch import load_file

from transformer_mt import average, prepare, translate
from transformer_mt.base.errors import TokenizerError
from transformer_mt.base.languages import UNK
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.text.existing_tokenizer import extended, old_parts
from transformer_mt.text.tokenizer import Tokenizer, clean, user_symbols

OLD = [pair for pair in demo_pairs(200)]
NEW = ["Ζει μόνος στο μεγάλο σπίτι.", "Το μεγάλο σπίτι είναι δίπλα στη θάλασσα.", "Η θάλασσα είναι μεγάλη 😀"] * 9  # noqa: RUF001  # Greek
NEAR = ["Elke week slapen er zeven honden.", "De reizigers hebben elke week een huis gehuurd."] * 9
LONG = "<" + "long" * 60 + ">"  # its length does not fit into seven bits


def trained(lines: list[str], settings: TokenizerConfig, symbols: list[str]) -> Tokenizer:
    return Tokenizer.train(lines, lines[::-1], settings, symbols)


def pieces_of(tokenizer: Tokenizer, side: str) -> list[str]:
    processor = getattr(tokenizer, side)
    return processor.id_to_piece(list(range(processor.get_piece_size())))  # type: ignore[no-any-return]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_old_pieces_keep_their_ids_and_new_ones_follow(algorithm: str, joint: bool) -> None:
    before = TokenizerConfig.model_validate({"algorithm": algorithm, "joint": joint, "vocab_size": 400})
    old = Tokenizer.train(*map(list, zip(*OLD, strict=True)), before, ["<2de>"])
    after = before.model_copy(update={"vocab_size": 440, "extend_from": "old"})
    new = trained(NEW, after, ["<2de>", "<2el>", LONG])
    assert new.target_vocab_size < 440, "this text has fewer pieces"
    grown = extended(old, new, after, ["<2de>", "<2el>", LONG])
    assert grown.joint == joint and len(grown.processors) == 2 - joint
    for side in ("source", "target"):
        pieces = pieces_of(grown, side)
        assert len(set(pieces)) == len(pieces) and (
            len(pieces) == 440 or (algorithm == "unigram" and len(pieces) > 420)
        )
        assert pieces[:400] == pieces_of(old, side) and pieces[400:402] == ["<2el>", LONG]
        assert user_symbols(getattr(grown, side)) == ["<2de>", "<2el>", LONG]
        added = set(pieces[402:])
        assert added and added <= set(pieces_of(new, side))

    lines = [*NEW, *(source for source, _ in OLD), f"<2el> {NEW[0]} {LONG}", "ü 😀 ж"]
    ids = grown.encode_target(lines)
    assert [grown.decode_target(each) for each in ids] == list(map(clean, lines))
    fewer = sum(map(len, grown.encode_target(NEW))), sum(map(len, old.encode_target(NEW)))
    assert fewer[0] < 0.6 * fewer[1], "the new pieces are used"
    assert not any(UNK in each for each in ids)


def ends(tokenizer: Tokenizer, line: str) -> set[int]:
    """Where the pieces of a line end, in characters."""
    return set(accumulate(map(len, tokenizer.source_pieces(tokenizer.encode_source([line])[0][:-1]))))


def test_with_bpe_new_pieces_only_join_old_ones() -> None:
    settings = TokenizerConfig(vocab_size=400)
    old = Tokenizer.train(*map(list, zip(*OLD, strict=True)), settings)
    after = settings.model_copy(update={"vocab_size": 450, "extend_from": "old"})
    grown = extended(old, trained(NEAR, after, []), after, [])
    cut = [(ends(grown, line), ends(old, line)) for pair in OLD for line in pair]
    assert all(now <= before for now, before in cut)
    assert sum(now < before for now, before in cut) > 50 and sum(now == before for now, before in cut) > 5


def test_each_new_piece_is_put_together_from_old_ones() -> None:
    settings = TokenizerConfig(vocab_size=400)
    old = Tokenizer.train(*map(list, zip(*OLD, strict=True)), settings)
    after = settings.model_copy(update={"vocab_size": 430, "extend_from": "old"})
    grown = extended(old, trained(NEW, after, []), after, ["<2el>"])
    parts = old_parts(grown, old)
    assert parts is not None and parts[0] == parts[1] and len(parts[0]) == 30
    for piece, ids in zip(pieces_of(grown, "target")[400:], parts[1], strict=True):
        assert old.target.decode(ids).strip() == piece.replace("\u2581", " ").strip()
    assert old_parts(old, old) == ([], [])
    assert old_parts(old, grown) is None and old_parts(trained(NEW, after, []), old) is None


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_letters_come_first_so_that_unseen_words_are_no_bytes(algorithm: str) -> None:
    settings = TokenizerConfig.model_validate({"algorithm": algorithm, "vocab_size": 400})
    old = Tokenizer.train(*map(list, zip(*OLD, strict=True)), settings)
    letters = set("".join(NEW)) - set("".join(pieces_of(old, "source"))) - {" "}
    after = settings.model_copy(update={"vocab_size": 400 + len(letters), "extend_from": "old"})
    grown = extended(old, trained(NEW, after, []), after, [])
    assert len(letters) > 15 and letters <= set(pieces_of(grown, "source"))


def test_a_vocabulary_without_room_is_refused() -> None:
    settings = TokenizerConfig(vocab_size=400)
    old = Tokenizer.train(*map(list, zip(*OLD, strict=True)), settings)
    for size, symbols in ((400, []), (399, []), (401, ["<a>", "<b>"])):
        after = settings.model_copy(update={"vocab_size": size, "extend_from": "runs/old"})
        with pytest.raises(
            TokenizerError, match=message("extended-vocabulary-too-small", str(size), "runs/old", "400")
        ):
            extended(old, old, after, symbols)
    after = settings.model_copy(update={"vocab_size": 450, "extend_from": "runs/old", "algorithm": "unigram"})
    with pytest.raises(TokenizerError, match=message("extended-algorithm-differs", "runs/old", "bpe", "unigram")):
        extended(old, old, after, [])
    after = settings.model_copy(update={"vocab_size": 401, "extend_from": "runs/old"})
    assert extended(old, old, after, ["<a>"]).target_vocab_size == 401, "a tag needs no further piece"


@pytest.fixture
def reverse(tmp_path: Path) -> Path:
    """The configuration of both directions, of which the old model knows one without a tag."""
    path = write_experiment(tmp_path)
    content = yaml.safe_load(path.read_text())
    text = content["corpus"]["train"]
    content["corpus"]["train"] = [
        {"name": "en_de", "path": text},
        {"name": "de_en", "path": text, "source": "de", "target": "en", "tag": "<2en>"},
    ]
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.thorough
def test_a_model_learns_a_further_direction_from_where_it_was(
    run: Path, reverse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], run_stage: object
) -> None:
    average.main([str(run)])
    old = Tokenizer.load(run / "model")
    size = old.target_vocab_size + 1
    overrides = [f"data_dir={tmp_path / 'data'}", f"tokenizer={{extend_from: {run / 'model'}, vocab_size: {size}}}"]
    assert prepare.main([str(reverse), *overrides]) == 0
    assert prepare.main([str(reverse), *overrides]) == 0
    (run / "model").rename(tmp_path / "moved")  # the old tokenizer may move, and vanish
    moved = f"tokenizer={{extend_from: {tmp_path / 'moved'}, vocab_size: {size}}}"
    assert prepare.main([str(reverse), overrides[0], moved]) == prepare.main([str(reverse), *overrides]) == 0
    (tmp_path / "moved").rename(run / "model")
    said = capsys.readouterr().out
    assert said.count("got 1 new piece\n") == 1 and said.count("already prepared") == 3
    still = ["training.max_steps=1", "training.peak_lr=1e-30", f"training.initialise_from={run / 'model'}"]
    new = train_tiny(reverse, tmp_path / "new", *overrides, *still)
    before, after = load_file(run / "model" / "model.safetensors"), weights_at(new, 1)
    parts = old_parts(Tokenizer.load(tmp_path / "data"), old)
    assert parts is not None and before.keys() == after.keys()
    for name, weight in before.items():
        found = after[name]
        if found.shape != weight.shape:
            expected = weight[parts[1][0]].mean(0, keepdim=True)
            torch.testing.assert_close(found[len(weight) :], expected, rtol=0, atol=1e-6)
            found = found[: len(weight)]
        torch.testing.assert_close(found, weight, rtol=0, atol=1e-20)
    average.main([str(new)])
    texts = "".join(f"{source}\n" for source, _ in demo_pairs(20)).encode()
    outputs = [run_stage(translate.main, texts, path / "model", "--quiet") for path in (run, new)]  # type: ignore[operator]
    assert outputs[0] == outputs[1], "the old direction translates as before"


def test_both_ways_to_use_a_tokenizer_exclude_each_other(
    run: Path, reverse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = f"tokenizer={{extend_from: {run / 'model'}, from: {run / 'model'}}}"
    status, error = status_and_error(prepare.main, reverse, key, capsys=capsys)
    assert status == 2 and says(error, "from-and-extend-from")
    key = f"tokenizer={{extend_from: {run}, vocab_size: 600, joint: false}}"
    status, error = status_and_error(prepare.main, reverse, key, "model.tied_embeddings=none", capsys=capsys)
    assert status == 2 and says(error, "tokenizer-joint-unfit", "tokenizer.extend_from")
