"""What transformers computes with a directory of MarianMT, this package computes from the same directory."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from helpers.marian import load_marian_tokenizer, write_marian
from helpers.messages import message
from helpers.thorough import thorough, thorough_rows
from helpers.tiny import demo_pairs

from transformer_mt import evaluate, export, score, translate
from transformer_mt.base.errors import CheckpointError, EvaluationError, TokenizerError
from transformer_mt.base.languages import BOS, PAD
from transformer_mt.decoding.translator import Translator
from transformer_mt.marian import as_model_dir
from transformer_mt.marian.marian_tokenizer import read_tokenizer
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.text.existing_tokenizer import extended, old_parts
from transformer_mt.text.tokenizer import Tokenizer, user_symbols
from transformer_mt.training.loss import label_smoothed, real_features

pytest.importorskip("transformers")
pytestmark = pytest.mark.thorough  # transformers and the tiny models of it take a quarter of a minute

PAIRS = demo_pairs(300)
SOURCES, TARGETS = map(list, zip(*PAIRS, strict=True))
LINES = SOURCES[:12]
TAGS = (">>deu<<", ">>nld<<")
NAME = "opus"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def marian(tmp_path, **variant):
    return write_marian(tmp_path / NAME, SOURCES, TARGETS, **variant)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """One that has learnt a little, so that its translations differ and end; to be read alone."""
    return write_marian(tmp_path_factory.mktemp("taught") / NAME, SOURCES, TARGETS, updates=120)


def theirs_of(directory):
    from transformers import MarianMTModel  # here, for it takes a second

    return MarianMTModel.from_pretrained(directory, dtype=torch.float32).eval()


def padded(sentences):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in sentences], True, PAD)


def ids_of(directory):
    """Their ids of our source and of our target pieces."""
    _, source_ids, target_ids = read_tokenizer(
        directory, json.loads((directory / "config.json").read_text()), {"separate_vocabs": True}
    )
    return torch.tensor(source_ids), torch.tensor(target_ids)


def batch_of(translator):
    """Sources BS, and decoder inputs BT, of the first pairs."""
    tokenizer = translator.tokenizer
    targets = [[BOS, *ids] for ids in tokenizer.encode_target(TARGETS[:12])]
    return padded(tokenizer.encode_source(LINES)), padded(targets)


@pytest.mark.parametrize(
    "variant",
    [
        {"separate": True, "algorithm": "bpe"},
        {"weights": "pytorch_model.bin", "activation_function": "relu", "tags": TAGS},
        *thorough(
            {},
            {"separate": True, "tie_word_embeddings": False},
            {"activation_function": "gelu", "left_out": 20},
            {"algorithm": "bpe", "encoder_layers": 1, "decoder_layers": 3},
        ),
    ],
    ids=str,
)
@torch.no_grad()
def test_logits_are_theirs(variant, tmp_path):
    directory = marian(tmp_path, **variant)
    translator = Translator.load(directory, "cpu", plain=True)
    source_BS, target_BT = batch_of(translator)
    source_ids, target_ids = ids_of(directory)
    their_BTV = theirs_of(directory)(
        source_ids[source_BS], attention_mask=source_BS != PAD, decoder_input_ids=target_ids[target_BT]
    ).logits
    our_BTV = translator.engine.model(source_BS, target_BT)
    torch.testing.assert_close(
        our_BTV[..., 1:], their_BTV[..., target_ids[1:]], rtol=0, atol=1e-4 if "weights" not in variant else 5e-3
    )


@pytest.mark.parametrize("algorithm", ["unigram", *thorough("bpe")])
def test_pieces_are_theirs_also_after_a_tag(algorithm, tmp_path):
    directory = marian(tmp_path, algorithm=algorithm, tags=TAGS)
    theirs, ours = load_marian_tokenizer(directory), Translator.load(directory, "cpu").tokenizer
    for line in [*SOURCES[:100], *(f"{TAGS[1]} {line}" for line in LINES), "Zebras — 1 %", ""]:
        pieces = ours.source_pieces(ours.encode_source([line])[0])
        assert [piece.replace("▁>>", ">>") for piece in pieces] == theirs.convert_ids_to_tokens(theirs(line).input_ids)
    assert set(user_symbols(ours.source)) == {f"▁{tag}" for tag in TAGS}  # so that sampling of subwords keeps them
    for line in TARGETS[:100]:
        pieces = ours.target_pieces(ours.encode_target([line])[0])
        assert pieces == theirs.convert_ids_to_tokens(theirs(text_target=line).input_ids)
        if "<unk>" not in pieces:
            assert ours.decode_target(ours.encode_target([line])[0]) == line


@pytest.mark.parametrize("separate", [False, *thorough(True)])
def test_its_tokenizer_is_extended_by_letters_and_tags_of_the_same_form(separate, tmp_path):
    directory = marian(tmp_path, tags=TAGS, separate=separate)
    old = Translator.load(directory, "cpu").tokenizer
    text = ["Ж ж Ж ж Щ щ", "щ Ж"] * 20
    size = max(old.source_vocab_size, old.target_vocab_size) + 8
    settings = TokenizerConfig(algorithm="unigram", vocab_size=size, extend_from="opus", joint=not separate)
    tags = [*(tag for tag in TAGS), ">>rus<<"]
    grown = extended(old, Tokenizer.train(text, text[::-1], settings, tags), settings, tags)
    assert old_parts(grown, old) is not None
    assert set(user_symbols(grown.source)) - set(user_symbols(old.source)) == {"▁>>rus<<"}
    pieces = grown.source_pieces(grown.encode_source([">>rus<< Ж щ"])[0])
    assert pieces[0] == "▁>>rus<<" and {"Ж", "щ"} <= {piece.strip("▁") for piece in pieces}


def test_a_piece_that_the_model_does_not_know_is_cut_into_smaller_ones(tmp_path):
    directory = marian(tmp_path, left_out=30)
    ours = Translator.load(directory, "cpu").tokenizer
    known = json.loads((directory / "vocab.json").read_text())
    names = [piece for line in LINES for piece in ours.source_pieces(ours.encode_source([line])[0])]
    assert set(names) <= set(known) and "<pad>" not in names


@pytest.mark.thorough
@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_are_theirs(beam_size, taught):
    found, theirs = translations(taught, LINES, beam_size)
    ended = [i for i, each in enumerate(found) if len(each.pieces) < 40]  # the others differ in their greatest length
    assert len(ended) > 6 and len({theirs[i] for i in ended}) > 3
    assert [found[i].text for i in ended] == [theirs[i] for i in ended]


@pytest.mark.skipif("MARIAN_DIR" not in os.environ, reason="MARIAN_DIR names no directory")
@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_of_a_published_model_are_theirs(beam_size):
    """The directory MARIAN_DIR, such as a copy of Helsinki-NLP/opus-mt-en-de. Set MARIAN_TAG if it needs a tag."""
    tag = os.environ.get("MARIAN_TAG", "")
    lines = [f"{tag} {line}".strip() for line in SOURCES[:50]]
    found, theirs = translations(Path(os.environ["MARIAN_DIR"]), lines, beam_size)
    ended = [i for i, each in enumerate(found) if len(each.pieces) < 40]
    assert [found[i].text for i in ended] == [theirs[i] for i in ended]


def translations(directory, lines, beam_size):
    """Ours, and the texts of theirs."""
    theirs, tokenizer = theirs_of(directory), load_marian_tokenizer(directory)
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    # Without a length penalty, because the programs end a search with one in different ways.
    generated = theirs.generate(**batch, num_beams=beam_size, max_length=100, length_penalty=0.0)
    ours = Translator.load(directory, "cpu")
    wanted = {"beam_size": beam_size, "length_penalty": 0.0, "split_sentences": "never"}
    found = ours.translations(lines, ours.decoding.model_copy(update=wanted))
    return [each[0] for each in found], tokenizer.batch_decode(generated, skip_special_tokens=True)


def test_the_settings_of_decoding_are_theirs(taught):
    decoding = Translator.load(taught, "cpu").decoding
    assert (decoding.beam_size, decoding.length_penalty, decoding.length_penalty_form) == (4, 1.0, "average")


@pytest.mark.thorough
def test_fifty_updates_are_theirs(tmp_path):
    """Of Adam. Theirs does not train the row of <pad> as an input, and ours trains the bias: here they agree."""
    directory = marian(tmp_path)
    theirs = theirs_of(directory)
    theirs.model.decoder.embed_tokens.padding_idx = theirs.model.encoder.embed_tokens.padding_idx = None
    translator = Translator.load(directory, "cpu", plain=True)
    ours = translator.engine.model
    source_ids, target_ids = ids_of(directory)
    trained = [weight for weight in theirs.parameters() if weight.requires_grad]
    our_weights = [weight for name, weight in ours.named_parameters() if name != "output_bias_V"]
    optimizers = [torch.optim.Adam(each, lr=1e-3) for each in (trained, our_weights)]
    losses = []
    for update in range(50):
        part = slice(8 * update % 296, 8 * update % 296 + 8)
        source_BS = padded(translator.tokenizer.encode_source(SOURCES[part]))
        label_BT = padded(translator.tokenizer.encode_target(TARGETS[part]))
        input_BT = torch.cat([torch.full((len(label_BT), 1), BOS), label_BT[:, :-1]], dim=1)
        labels = target_ids[label_BT].masked_fill(label_BT == PAD, -100)
        their_loss = theirs(
            source_ids[source_BS],
            attention_mask=source_BS != PAD,
            decoder_input_ids=target_ids[input_BT],
            labels=labels,
        ).loss
        input_BT = input_BT.masked_fill(label_BT == PAD, PAD)
        features_ND = real_features(ours, source_BS, input_BT)
        label_N = label_BT[label_BT != PAD]
        smoothed, _ = label_smoothed(features_ND, ours.output_VD, label_N, 0.0, ours.output_bias_V)
        our_loss = smoothed / len(label_N)
        for loss, optimizer in zip((their_loss, our_loss), optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append((their_loss.item(), our_loss.item()))
    assert losses[-1][0] < losses[0][0] - 1
    assert [ours for _, ours in losses] == pytest.approx([theirs for theirs, _ in losses], rel=1e-3)


def test_our_own_export_is_read_back(model_dir, tmp_path):
    exported = tmp_path / "exported"
    export.export(model_dir, exported, "huggingface")
    ours, again = Translator.load(model_dir, "cpu"), Translator.load(exported, "cpu")
    decoding = ours.decoding.model_copy(update={"split_sentences": "never"})
    texts = [[each[0].text for each in each_of.translations(LINES, decoding)] for each_of in (ours, again)]
    assert texts[0] == texts[1]


def test_what_is_read_and_exported_again_is_theirs(tmp_path):
    directory = marian(tmp_path, tags=TAGS)
    again = tmp_path / "again"
    assert export.main([str(directory), str(again), "--format", "huggingface"]) == 0
    line = f"{TAGS[0]} {LINES[0]}"
    first, second = (
        theirs_of(each)(
            **load_marian_tokenizer(each)(line, return_tensors="pt"),
            decoder_input_ids=torch.tensor(
                [[json.loads((each / "config.json").read_text())["decoder_start_token_id"]]]
            ),
        ).logits[0, 0]
        for each in (directory, again)
    )
    _, target_ids = ids_of(directory)
    torch.testing.assert_close(second[1:], first[target_ids[1:]], rtol=0, atol=1e-4)


def test_the_commands_take_the_directory(taught, tmp_path, capsys):
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(LINES) + "\n")
    for _ in range(2):
        assert translate.main([str(taught), "--input", str(lines), "--output", str(tmp_path / "out.txt")]) == 0
    assert len((tmp_path / "out.txt").read_text().splitlines()) == len(LINES)
    assert score.main([str(taught), str(lines), str(tmp_path / "out.txt")]) == 0
    assert capsys.readouterr().err.count("converted") == 1  # the commands after the first find it in the cache


def test_evaluate_takes_the_test_sets_of_prepared_data(taught, experiment, capsys):
    arguments = [str(taught), f"data_dir={experiment.parent / 'data'}", "beam_size=1", "--metrics", "bleu"]
    assert evaluate.main(arguments) == 0
    said = capsys.readouterr().out
    assert "tiny  BLEU" in said
    with pytest.raises(EvaluationError, match=message("config-without-test-sets")):
        evaluate.main([str(taught)])


def test_it_is_exported_to_ctranslate2(taught, tmp_path):
    pytest.importorskip("ctranslate2")
    assert export.main([str(taught), str(tmp_path / "ct2"), "--format", "ctranslate2"]) == 0
    ours, exported = Translator.load(taught, "cpu"), Translator.load(tmp_path / "ct2", "cpu", engine="ctranslate2")
    decoding = ours.decoding.model_copy(update={"split_sentences": "never", "beam_size": 1})
    texts = [[each[0].text for each in each_of.translations(LINES, decoding)] for each_of in (ours, exported)]
    assert sum(a == b for a, b in zip(*texts, strict=True)) >= len(LINES) - 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scale_embedding": False}, "scale_embedding=false"),
        *thorough_rows(
            ({"normalize_before": True}, "normalize_before"),
            ({"static_position_embeddings": False}, "static_position_embeddings=false"),
            ({"activation_function": "tanh"}, "activation_function=tanh"),
            ({"encoder_ffn_dim": 64}, "encoder_ffn_dim and decoder_ffn_dim differ"),
        ),
    ],
)
def test_a_model_that_we_cannot_run_is_refused(changes, words, taught, tmp_path):
    directory = shutil.copytree(taught, tmp_path / NAME)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(CheckpointError, match=message("marian-cannot-run", NAME, words)):
        as_model_dir(directory)


@pytest.mark.parametrize("name", ["encoder_layers", *thorough("pad_token_id")])
def test_a_missing_number_is_named(name, taught, tmp_path):
    directory = shutil.copytree(taught, tmp_path / NAME)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({key: value for key, value in config.items() if key != name}))
    with pytest.raises(CheckpointError, match=message("marian-number-is-missing", "config.json", name)):
        as_model_dir(directory)


@pytest.mark.parametrize("name", ["vocab.json", *thorough("source.spm", "model.safetensors", "config.json")])
@pytest.mark.parametrize("content", [b"damaged", b"[" * 100_000], ids=["damaged", "nested"])
def test_a_damaged_file_is_named(name, content, taught, tmp_path):
    directory = shutil.copytree(taught, tmp_path / NAME)
    (directory / name).write_bytes(content)
    with pytest.raises((CheckpointError, TokenizerError), match=name):
        as_model_dir(directory)
    assert not list((tmp_path / "cache").rglob("config.yaml"))


def test_bpe_without_some_of_its_pieces_is_refused(tmp_path):
    """They are steps of merges, without which other pieces could not be made."""
    with pytest.raises(TokenizerError, match=message("bpe-lacks-pieces", "source.spm")):
        as_model_dir(marian(tmp_path, algorithm="bpe", left_out=30))


@pytest.mark.parametrize("algorithm", ["bpe", *thorough("unigram")])
def test_symbols_of_our_own_export_stay_whole(algorithm, tmp_path):
    from helpers.untrained import write_untrained

    from transformer_mt.settings.text_settings import TokenizerConfig
    from transformer_mt.text.tokenizer import Tokenizer

    tags = ["<2de>", TAGS[0]]
    tokenizer = Tokenizer.train(SOURCES, TARGETS, TokenizerConfig(algorithm=algorithm, vocab_size=500), tags)
    model_dir = write_untrained(tmp_path / "model", tokenizer)
    export.export(model_dir, tmp_path / "exported", "huggingface")
    again = Translator.load(tmp_path / "exported", "cpu").tokenizer
    lines = [*LINES, *(f"{tag} {line}" for tag in tags for line in LINES)]
    assert again.encode_source(lines) == tokenizer.encode_source(lines)
    assert again.source is again.target


def test_another_model_with_the_same_name_and_time_is_converted_again(tmp_path):
    places = [tmp_path / each / NAME for each in "ab"]
    first = marian(places[0].parent)
    shutil.copytree(first, places[1])
    assert as_model_dir(places[0]) != as_model_dir(places[1])


def test_a_damaged_conversion_is_made_again(taught):
    made = as_model_dir(taught)
    (made / "model.safetensors").write_bytes(b"damaged")
    assert as_model_dir(taught) == made
    assert Translator.load(taught, "cpu").tokenizer.joint
