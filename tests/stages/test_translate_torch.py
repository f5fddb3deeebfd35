"""Prefixes and alignments on the whole way from a line to a line."""

import json

import pytest
from helpers.thorough import thorough
from helpers.tiny import demo_pairs

from transformer_mt import score, translate

SENTENCES = [source for source, _ in demo_pairs(6)]
SEARCHES = [["beam_size=1"], ["beam_size=3", "n_best=3"], ["sampling=true", "n_best=2"]]


@pytest.fixture
def found(run_stage, model_dir):
    """A function that translates lines with these arguments, and reads its JSON."""

    def run(lines, *arguments):
        content = "\n".join(lines).encode() + b"\n"
        status, output = run_stage(translate.main, content, model_dir, "--device", "cpu", "--json", *arguments)
        assert status == 0
        return [json.loads(line) for line in output.decode().split("\n")[:-1]]

    return run


@pytest.mark.parametrize("search", [SEARCHES[0], *thorough(*SEARCHES[1:])])
def test_every_target_word_has_one_source_word(found, search):
    for line, result in zip(SENTENCES, found(SENTENCES, "--alignment", *search), strict=True):
        for translation in result.get("n_best", [result]):
            pairs = [tuple(map(int, pair.split("-"))) for pair in translation["alignment"].split()]
            assert [target for _, target in pairs] == list(range(len(translation["translation"].split())))
            assert all(0 <= source < len(line.split()) for source, _ in pairs)


@pytest.mark.parametrize("search", [*thorough(*SEARCHES[:-1]), SEARCHES[-1]])
def test_every_translation_begins_with_its_prefix(found, tmp_path, search):
    prefixes = ["Der", "", "Ein alter Hund", "Wir", "Die Häuser", "Sie"]
    path = tmp_path / "prefixes"
    path.write_text("\n".join(prefixes) + "\n", encoding="utf-8")
    for prefix, result in zip(prefixes, found(SENTENCES, "--prefix", path, *search), strict=True):
        for translation in result.get("n_best", [result]):
            assert translation["translation"].startswith(prefix)


@pytest.mark.parametrize("search", [*thorough(*SEARCHES[:-1]), SEARCHES[-1]])
def test_the_reported_log_probability_is_that_of_the_pieces_prefix_included(
    run_stage, model_dir, found, tmp_path, search
):
    path = tmp_path / "prefixes"
    path.write_text("Ein\n" * len(SENTENCES), encoding="utf-8")
    results = found(SENTENCES, "--prefix", path, *search)
    pairs = [f"{source}\t{' '.join(result['pieces'])}\n" for source, result in zip(SENTENCES, results, strict=True)]
    _, output = run_stage(score.main, "".join(pairs).encode(), model_dir, "--device", "cpu", "--pieces")
    for result, scored in zip(results, output.decode().splitlines(), strict=True):
        assert float(scored.split("\t")[0]) == pytest.approx(result["log_prob"], abs=1e-3)
