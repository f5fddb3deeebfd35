"""The stage rerank, and `score --add`, which prepares its lists."""

import json

import pytest
from helpers.messages import says
from helpers.tiny import demo_pairs

from transformer_mt import rerank, score, translate
from transformer_mt.decoding.line_parts import Tags
from transformer_mt.decoding.scorer import PairScore, Scorer

SOURCES = [source for source, _ in demo_pairs(3)] + [""]


@pytest.fixture
def lists(run_stage, model_dir, tmp_path):
    """A file of n-best lists that `translate` wrote, and that of its sources."""
    source = tmp_path / "source.txt"
    source.write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    arguments = [model_dir, "--device", "cpu", "--json", "--quiet", "n_best=3", "beam_size=3"]
    status, output = run_stage(translate.main, source.read_bytes(), *arguments)
    assert status == 0
    (tmp_path / "lists.jsonl").write_bytes(output)
    return tmp_path / "lists.jsonl", source


def read(output):
    return [json.loads(line) for line in output.decode().splitlines()]


@pytest.mark.thorough
@pytest.mark.parametrize("reverse", [False, True])
def test_each_translation_gets_its_log_probability(run_stage, model_dir, lists, reverse):
    path, source = lists
    direction = ["--reverse"] if reverse else []
    arguments = [model_dir, "--device", "cpu", source, "--add", "channel", *direction, "--buffer-lines", 32]
    status, output = run_stage(score.main, b"", *arguments, path)
    assert (status, output) == run_stage(score.main, path.read_bytes(), *arguments)
    before, after = read(path.read_bytes()), read(output)
    found = [translation.pop("channel") for each in after for translation in each["n_best"]]
    assert after == before, "nothing else has changed"
    pairs = [(line, each["translation"]) for line, of in zip(SOURCES, before, strict=True) for each in of["n_best"]]
    sides = list(zip(*[pair[::-1] if reverse else pair for pair in pairs], strict=True))
    expected = [each.log_prob for each in Scorer.load(model_dir, "cpu").score(*sides)]
    assert found == pytest.approx(expected, abs=1e-4) and found[-1] == 0.0 and len(found) == 10


@pytest.mark.parametrize("which", ["lists", "source"])
@pytest.mark.parametrize("stage", ["score", "rerank"])
def test_a_file_that_becomes_shorter_meanwhile_is_an_error(
    run_stage, model_dir, lists, tmp_path, monkeypatch, capsys, stage, which
):
    """The source takes the place of references for `rerank`."""
    path = lists[which == "source"]
    if stage == "score":
        of, name, main, arguments = Scorer, "score", score.main, [model_dir, *lists[::-1], "--add", "x"]
        arguments += ["--device", "cpu", "--buffer-lines", 32]  # blocks of two lists
    else:
        of, name, main, arguments = rerank, "closest", rerank.main, [lists[0], "--closest", lists[1]]
        arguments += ["--buffer-lines", 2]
    work = getattr(of, name)

    def changing(*given, **options):
        path.write_bytes(path.read_bytes()[:30])
        return work(*given, **options)

    monkeypatch.setattr(of, name, changing)
    status, written = run_stage(main, b"", *arguments)
    assert status == 2 and says(capsys.readouterr().err, "text-changed-while-read", str(path))
    assert written.count(b"\n") == 2


def test_the_pieces_of_the_lists_have_the_probability_that_translate_reported(run_stage, model_dir, lists, capsys):
    path, source = lists
    content = path.read_text(encoding="utf-8")
    arguments = [model_dir, "--device", "cpu", source, path, "--add", "own", "--pieces"]
    status, output = run_stage(score.main, b"", *arguments)
    each = [translation for line in read(output) for translation in line["n_best"]]
    assert status == 0 and len(each) == 10
    assert [of["own"] for of in each] == pytest.approx([of["log_prob"] for of in each], abs=1e-4)
    pieces = json.dumps(read(content.encode())[0]["n_best"][0]["pieces"], ensure_ascii=False)
    for odd, *expected in (
        ('["Xx"]', "not-target-piece", "target", "1", "'Xx'"),
        ('"Xx"', "n-best-pieces-wrong", ":1:", "1"),
    ):
        path.write_text(content.replace(f'"pieces": {pieces}', f'"pieces": {odd}'), encoding="utf-8")
        assert run_stage(score.main, b"", *arguments) == (2, b"")
        assert says(capsys.readouterr().err, *expected)


def listed(line, *translations):
    """A line of n-best lists, of translations as text, length, log-probability and channel."""
    keys = ("translation", "pieces", "log_prob", "channel")
    found = [
        dict(zip(keys, (text, ["x"] * (length - 1), *numbers), strict=False)) for text, length, *numbers in translations
    ]
    return json.dumps({"line": line, "translation": found[0]["translation"], "n_best": found}) + "\n"


WRITTEN = (
    listed(1, ("a b c d e", 6, -3.0, -9.0), ("a b c d f", 6, -4.0, -5.0)),
    listed(2, ("g h i j k", 6, -1.0, -4.0), ("g h i j k l m", 12, -1.8, -6.0)),
)


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        (["channel=0"], "em"),
        (["channel=0.2", "length_penalty=0"], "ek"),  # -4.8 against -5, and -1.8 against -3
        (["channel=0.3", "length_penalty=0"], "fk"),  # -5.7 against -5.5
        (["channel=1", "log_prob=0"], "fm"),
        (["channel=0", "log_prob=0"], "ek"),  # of equal scores, the first
    ],
)
def test_the_highest_weighted_sum_by_length_is_chosen(run_stage, tmp_path, settings, chosen):
    (tmp_path / "lists").write_text("".join(WRITTEN))
    status, output = run_stage(rerank.main, b"", tmp_path / "lists", *settings)
    assert status == 0 and "".join(line[-1] for line in output.decode().splitlines()) == chosen


def test_the_best_weights_on_the_validation_set_are_named(run_stage, tmp_path):
    (tmp_path / "lists").write_text("".join(WRITTEN))
    (tmp_path / "reference").write_text("a b c d f\ng h i j k\n")
    arguments = [tmp_path / "lists", "--tune", tmp_path / "reference", "length_penalty=0"]
    status, output = run_stage(rerank.main, b"", *arguments)
    said = output.decode().splitlines()
    assert (status, len(said)) == (0, 1 + 9 + 2)
    assert "without reranking" in said[0] and said[4] == "validation set  bleu 100.00  length_penalty=0 channel=0.3"
    assert said[-2] == "best on the 2 lines of the validation set: length_penalty=0 channel=0.3"
    assert said[-1].endswith("length_penalty=0 channel=0")
    status, output = run_stage(rerank.main, b"", *arguments, "channel=0.1,0.3")
    assert (status, output.count(b"validation set  bleu")) == (0, 3)


def test_a_length_penalty_far_from_1_is_no_error(run_stage, tmp_path):
    (tmp_path / "lists").write_text("".join(WRITTEN))
    for penalty in ("400", "1e308", "-400"):
        status, output = run_stage(rerank.main, b"", tmp_path / "lists", "channel=1", f"length_penalty={penalty}")
        assert (status, output.count(b"\n")) == (0, 2)


@pytest.mark.parametrize(
    ("lines", "arguments", "code", "facts"),
    [
        (WRITTEN, [], "no-weight-given", []),
        (WRITTEN, ["chanel=1"], "n-best-number-missing", [":1:", "chanel", " 1 ", "null"]),
        (WRITTEN, ["channel=a"], "weight-malformed", ["channel=a:"]),
        (WRITTEN, ["=1"], "weight-name-twice", ["=1:"]),
        (WRITTEN, ["channel=1", "log_prob=1", "log_prob=0"], "weight-name-twice", ["log_prob=0:"]),
        (WRITTEN[1:], ["channel=1"], "n-best-lines-skipped", [":1:", " 1 "]),
        (["1\t-0.5\ta text\n"], ["channel=1"], "n-best-not-json", [":1:"]),
        (['{"line": 1, "translation": "a"}\n'], ["channel=1"], "n-best-missing", [":1:"]),
        (
            [WRITTEN[0].replace("-9.0", "null")],
            ["channel=1"],
            "n-best-number-missing",
            [":1:", "channel", " 1 ", "null"],
        ),
        ([WRITTEN[0].replace("-9.0", "NaN")], ["channel=1"], "n-best-not-json", [":1:"]),
        (WRITTEN[:1], ["--tune", "REFERENCE"], "line-beside-too-many", ["reference:", " 2 ", " 1 "]),
        (
            [line.replace("channel", "pieces") for line in WRITTEN],
            ["--tune", "REFERENCE"],
            "nothing-to-rerank-by",
            ["lists"],
        ),
    ],
)
def test_mistakes_are_named(run_stage, tmp_path, capsys, lines, arguments, code, facts):
    (tmp_path / "lists").write_text("".join(lines))
    (tmp_path / "reference").write_text("a\nb\n")
    arguments = [tmp_path / "reference" if each == "REFERENCE" else each for each in arguments]
    assert run_stage(rerank.main, b"", tmp_path / "lists", *arguments) == (2, b"")
    assert says(capsys.readouterr().err, code, *facts)


LINE_ENDS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize("end", ["\r\n", *LINE_ENDS])
def test_a_translation_of_several_lines_is_written_as_one_line(run_stage, tmp_path, end):
    (tmp_path / "lists").write_text(listed(1, (f"a{end}b{end}", 2, -1.0, -1.0)) + listed(2, ("c", 2, -1.0, -1.0)))
    (tmp_path / "reference").write_text("a b\nc\n")
    assert run_stage(rerank.main, b"", tmp_path / "lists", "channel=1") == (0, b"a b\nc\n")
    assert run_stage(rerank.main, b"", tmp_path / "lists", "--tune", tmp_path / "reference", "channel=1")[0] == 0


ODD = ["null", "[]", "{}", '""', "NaN", "1e999", str(10**400), r'"\ud800"', "true", "[null]", "[" * 600 + "]" * 600]


@pytest.mark.thorough
@pytest.mark.parametrize("field", ["line", "n_best", "0", *("translation", "pieces", "log_prob", "channel", "parts")])
def test_a_damaged_list_is_named_by_its_line_or_chosen_from(run_stage, tmp_path, capsys, field):
    found = json.loads(listed(2, ("a", 2, -1.0, -1.0), ("b", 2, -2.0, -2.0)))
    inside = {"line": found, "n_best": found, "0": found["n_best"]}.get(field, found["n_best"][0])
    inside[0 if field == "0" else field] = "odd"
    (tmp_path / "reference").write_text("a\nb\n")
    for odd in [*ODD, "1e308", "0", "-1"]:
        damaged = json.dumps(found).replace('"odd"', odd)
        (tmp_path / "lists").write_text(listed(1, ("c", 2, -1.0, -1.0)) + damaged + "\n")
        for arguments in (["channel=1"], ["--tune", tmp_path / "reference"]):
            status, output = run_stage(rerank.main, b"", tmp_path / "lists", *arguments)
            said = capsys.readouterr().err
            assert (status == 0 and output.count(b"\n") >= 2) or (status == 2 and "lists:2: " in said), (odd, said)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--add", "score"], ("add-name-not-allowed", "--add score:")),
        (["--add", "a-b"], ("add-name-not-allowed", "--add a-b:")),
        (["--add", "length_penalty"], ("add-name-not-allowed", "--add length_penalty:")),
        (["--add", "channel", "--reverse", "--pieces"], ("pieces-with-reverse",)),
        (["--add", "channel", "--tag", "<2de>"], ("tag-unknown-to-model", "--tag <2de>:", "<2de>")),
    ],
)
def test_mistakes_of_adding_are_named(run_stage, model_dir, lists, capsys, arguments, expected):
    path, source = lists
    assert run_stage(score.main, b"", model_dir, "--device", "cpu", source, path, *arguments) == (2, b"")
    assert says(capsys.readouterr().err, *expected)


def test_errors_name_the_line_of_the_source(run_stage, model_dir, lists, capsys):
    path, source = lists
    found = [("a", 2, -1.0), ("b", 2, -1.0)], [("a", 2, -1.0), ("wort " * 1100, 2, -1.0)]
    path.write_text("".join(listed(line, *found[line == 3]) for line in range(1, 5)))
    assert run_stage(score.main, b"", model_dir, "--device", "cpu", source, path, "--add", "other")[0] == 2
    assert says(capsys.readouterr().err, "scored-line-too-long", "target", "3")


def test_a_field_that_is_there_already_is_named(run_stage, model_dir, lists, capsys):
    path, source = lists
    path.write_text(path.read_text().replace('"score": ', '"channel": 1, "score": '))
    assert run_stage(score.main, b"", model_dir, "--device", "cpu", source, path, "--add", "channel") == (2, b"")
    assert says(capsys.readouterr().err, "add-name-taken", "lists.jsonl:1", "channel")


@pytest.mark.parametrize(
    ("tag", "reverse", "read"), [("<2de>", [], ("<2de> A", "b")), ("<2en>", ["--reverse"], ("<2en> b", "A"))]
)
def test_a_tag_stands_before_what_the_model_reads_and_never_before_what_it_scores(
    run_stage, model_dir, tmp_path, monkeypatch, tag, reverse, read
):
    seen = []

    def scores(self, sources, targets, **_):
        seen.extend(zip(sources, targets, strict=True))
        return [PairScore([], []) for _ in sources]

    load = Scorer.load.__func__

    def tagged(cls, *arguments, **options):
        scorer = load(cls, *arguments, **options)
        scorer.tags = Tags(("<2de>", "<2en>"), ("<2de>", "<2en>"))
        return scorer

    monkeypatch.setattr(Scorer, "load", classmethod(tagged))
    monkeypatch.setattr(Scorer, "score", scores)
    (tmp_path / "lists").write_text(listed(1, ("b", 2, -1.0)))
    (tmp_path / "source").write_text("<2de> A\n" if reverse else "A\n")
    arguments = ["--device", "cpu", tmp_path / "source", tmp_path / "lists", "--add", "x", "--tag", tag, *reverse]
    assert run_stage(score.main, b"", model_dir, *arguments)[0] == 0
    assert seen == [read]


CLOSER = (
    listed(1, ("a b c d e", 6, -3.0), ("a b c d f", 6, -4.0)),
    listed(2, ("g h i j k", 6, -1.0), ("g h i j k l m", 12, -1.8)),
    listed(3, ("x", 2, -1.0), ("y", 2, -1.5), ("x", 2, -2.0)),
    listed(4, ("n o", 3, -1.0), ("n\u2028o p q", 5, -2.0)),
)


def test_the_translation_closest_to_the_reference_is_chosen(run_stage, tmp_path, capsys):
    reference, path = tmp_path / "reference.txt", tmp_path / "lists.jsonl"
    path.write_text("".join(CLOSER), encoding="utf-8")
    reference.write_text("a b d f\ng h i k\nz\nn o p q r\n", encoding="utf-8")
    for lines in (1, 32):
        arguments = [path, "--closest", reference, "--buffer-lines", lines]
        assert run_stage(rerank.main, b"", *arguments) == (0, b"a b c d f\ng h i j k\nx\nn o p q\n")
    reference.write_text("a b\n", encoding="utf-8")
    assert run_stage(rerank.main, b"", path, "--closest", reference)[0] == 2
    assert says(capsys.readouterr().err, "line-beside-missing", "reference.txt", "2")
    assert run_stage(rerank.main, b"", path, "channel=1", "--closest", reference) == (2, b"")
    assert says(capsys.readouterr().err, "closest-without-weights")
