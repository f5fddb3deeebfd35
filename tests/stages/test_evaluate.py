"""The stage `evaluate`: files in, scores out, mistakes named."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
from helpers.directories import place, tree
from helpers.messages import says
from helpers.processes import python_path
from helpers.thorough import thorough
from helpers.tiny import renew_sums
from safetensors.numpy import save_file

from transformer_mt import evaluate
from transformer_mt.base.errors import NotFiniteError
from transformer_mt.decoding.translation import Translation
from transformer_mt.evaluate import main
from transformer_mt.evaluation.scores_json import SCHEMA_VERSION, Details, read_scores, score_files, write_scores
from transformer_mt.evaluation.variations import tune
from transformer_mt.preparing.prepared import files_of
from transformer_mt.reporting.page import Run, gather_tests
from transformer_mt.settings.reading import dump_config, load_config
from transformer_mt.storage.checksums import write_sums
from transformer_mt.storage.files import own_name
from transformer_mt.terminal import cli

ROOT = Path(__file__).parent.parent.parent
HYPOTHESES = ["Der Hund schläft hier.", "Sie sieht ein großes Haus.", "Er kommt heute nicht."]
REFERENCES = ["Der Hund schläft dort.", "Sie sieht das große Haus.", "Er kommt heute nicht."]
OTHERS = ["Dort schläft der Hund.", "Sie sieht ein großes Haus an.", "Heute kommt er nicht."]


def written(path: Path) -> dict[str, Any]:
    """What scores.json holds, by the name of the test set."""
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["schema_version"] == SCHEMA_VERSION
    return content["test_sets"]


def write(path: Path, lines: list[str], end: str = "\n") -> str:
    path.write_bytes("".join(line + end for line in lines).encode())
    return str(path)


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": python_path(ROOT), "PYTHONIOENCODING": "utf-8"},
    )


@pytest.fixture
def files(tmp_path):
    return write(tmp_path / "hyp.txt", HYPOTHESES), write(tmp_path / "ref.txt", REFERENCES)


class TestFiles:
    def test_prints_and_writes_sacrebleus_scores(self, tmp_path, files, capsys):
        other = write(tmp_path / "other.txt", OTHERS)
        target = tmp_path / "new" / "scores.json"
        arguments = ["--hypothesis", files[0], "--reference", files[1], "--reference", other]
        assert cli.run(main, [*arguments, "--language", "de", "--json", str(target)]) == 0
        expected = sacrebleu.BLEU().corpus_score(HYPOTHESES, [REFERENCES, OTHERS])
        result = written(target)[files[0]]
        assert result["scores"]["BLEU"]["value"] == expected.score
        assert result["scores"].keys() == {"BLEU", "chrF2", "TER"}
        assert (result["num_lines"], result["references"]) == (3, [files[1], other])
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 3
        assert f"BLEU  {expected.score:5.1f}  nrefs:2|case:mixed|" in lines[0]
        assert sorted(path.name for path in target.parent.iterdir()) == ["scores.json"]

    def test_intervals_are_printed_where_asked_for(self, files, capsys):
        expected = sacrebleu.BLEU().corpus_score(HYPOTHESES, [REFERENCES], n_bootstrap=1000)
        main(["--hypothesis", files[0], "--reference", files[1], "--confidence"])
        line = capsys.readouterr().out.splitlines()[0]
        assert f"{expected.score:.1f} ± " in line and "|bs:1000|seed:12345|" in line

    @pytest.mark.thorough
    def test_script_prints_and_writes_the_same(self, tmp_path, files, capsys):
        main(["--hypothesis", files[0], "--reference", files[1], "--json", str(tmp_path / "stage.json")])
        script = run(ROOT / "scripts/evaluate_bleu.py", *files, "--json", tmp_path / "script.json")
        assert (script.returncode, script.stdout) == (0, capsys.readouterr().out)
        assert (tmp_path / "script.json").read_bytes() == (tmp_path / "stage.json").read_bytes()

    @pytest.mark.thorough
    def test_script_takes_references_and_a_language(self, tmp_path, files):
        script = run(ROOT / "scripts/evaluate_bleu.py", *files, write(tmp_path / "o", OTHERS), "--language", "zh")
        assert "nrefs:2|" in script.stdout and "|tok:zh|" in script.stdout

    @pytest.mark.thorough
    def test_nothing_but_scores_is_written_over(self, tmp_path, files):
        target = tmp_path / "x.json"
        target.write_text("")
        results = score_files(Path(files[0]), [Path(files[1])], "", Details(), None)
        for _ in range(2):
            write_scores(target, results)
        target.write_text('["mine"]')
        script = run(
            "-m", "transformer_mt.evaluate", "--hypothesis", files[0], "--reference", files[1], "--json", target
        )
        assert script.returncode == 2 and says(script.stderr, "scores-file-not-ours", str(target))
        assert target.read_text() == '["mine"]'

    def test_only_newline_ends_a_line(self, tmp_path):
        lines = ["one\u2028two three four", "five\x0bsix\x85seven eight", ""]
        hypothesis = write(tmp_path / "hyp.txt", lines, end="\r\n")
        assert main(["--hypothesis", hypothesis, "--reference", write(tmp_path / "ref.txt", lines)]) == 0
        target = tmp_path / "scores.json"
        main(["--hypothesis", hypothesis, "--reference", hypothesis, "--json", str(target)])
        assert written(target)[hypothesis]["num_lines"] == 3

    def test_lines_that_are_shown_stay_lines_of_the_terminal(self, tmp_path, capsys):
        text = "ein\x0b \x85Haus\u2028 und\x1b[2J\u00a0Hof"
        shown = "ein\\x0b \\x85Haus\\u2028 und\\x1b[2J\u00a0Hof"
        odd = write(tmp_path / "odd", [text, text])
        assert main(["--hypothesis", odd, "--reference", odd, "--source", odd, "--analyse"]) == 0
        said = capsys.readouterr().out
        assert said.count(shown) == 6 and text not in said

    def test_tokenised_text_is_warned_of(self, tmp_path, files, capsys):
        tokenised = write(tmp_path / "tokenised.txt", [line.replace(".", " .") for line in HYPOTHESES])
        assert main(["--hypothesis", tokenised, "--reference", files[1]]) == 0
        error = capsys.readouterr().err
        assert "warning: 3 of 3 lines of the" in error and tokenised in error and files[1] not in error

    def test_chinese_without_its_language_is_warned_of(self, tmp_path, capsys):
        hypothesis = write(tmp_path / "hyp.txt", ["我喜欢大的房子。"])
        reference = write(tmp_path / "ref.txt", ["我喜欢小的房子。"])
        assert main(["--hypothesis", hypothesis, "--reference", reference]) == 0
        captured = capsys.readouterr()
        assert (
            f"warning: {reference} looks like one of the languages zh" in captured.err and "|tok:13a|" in captured.out
        )
        assert main(["--hypothesis", hypothesis, "--reference", reference, "--language", "zh"]) == 0
        captured = capsys.readouterr()
        assert captured.err == "" and "|tok:zh|" in captured.out and "|asian:yes|" in captured.out

    @pytest.mark.thorough
    def test_does_not_wait_for_pytorch(self, files):
        code = "import sys; from transformer_mt.evaluate import main; main(sys.argv[1:]); print('torch' in sys.modules)"
        found = run("-c", code, "--hypothesis", files[0], "--reference", files[1])
        assert found.stdout.splitlines()[-1] == "False"


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "nothing to evaluate"),
            (["--hypothesis", "{hyp}"], "--hypothesis needs --reference"),
            (["--reference", "{ref}"], "need --hypothesis"),
            (["{run}", "--language", "de"], "need --hypothesis"),
            (["{run}", "--hypothesis", "{hyp}", "--reference", "{ref}"], "cannot be combined with"),
            (["--test", "x", "--hypothesis", "{hyp}", "--reference", "{ref}"], "cannot be combined with"),
            (["--hypothesis", "{hyp}", "--reference", "{short}"], "hyp.txt has 3 lines, {short} has 2"),
            (["--hypothesis", "{hyp}", "--reference", "{ref}", "{short}"], "{short} has 2"),
            (["--hypothesis", "{hyp}", "--reference", "{latin}"], "{latin}:2"),
            (["--hypothesis", "{hyp}", "--reference", "{run}/none.txt"], "none.txt"),
            (["--hypothesis", "{empty}", "--reference", "{empty}"], "are empty"),
            (["--hypothesis", "{pieces}", "--reference", "{ref}"], "{pieces}, line 3"),
            (["--hypothesis", "{hyp}", "--reference", "{ref}", "--json", "{hyp}/x.json"], "cannot be written"),
            (
                ["--hypothesis", "{hyp}", "--reference", "{ref}", "--analyse"],
                "--analyse and comet= need the source sentences: give --source",
            ),
            (
                ["--hypothesis", "{hyp}", "--reference", "{ref}", "--metrics", "comet=x"],
                "comet= need the source sentences",
            ),
            (["{run}", "--metrics", "bleu", "comet=x", "comet=y"], "contains comet= twice"),
            (
                ["{run}", "--metrics", "comet=nowhere"],
                "comet=nowhere: nowhere is missing. Give the directory of a COMET",
            ),
            (["--compare", "{hyp}", "{ref}", "--metrics", "comet=x"], "cannot be combined"),
            (["{run}"], "{run} holds no config.yaml: name the directory of a model"),
            (["--hypothesis", "{hyp}", "--reference", "{ref}", "--quantize", "int8"], "cannot be combined with"),
            (["--hypothesis", "{hyp}", "--reference", "{ref}", "--ensemble", "{run}"], "cannot be combined with"),
        ],
    )
    def test_each_is_named(self, tmp_path, files, capsys, arguments, message):
        names = {"hyp": files[0], "ref": files[1], "run": str(tmp_path)}
        names["short"] = write(tmp_path / "short.txt", REFERENCES[:2])
        names["empty"] = write(tmp_path / "empty.txt", [])
        names["pieces"] = write(tmp_path / "pieces.txt", [*HYPOTHESES[:2], "\u2581Er \u2581kommt"])
        (tmp_path / "latin.txt").write_bytes("eins\nschläft\ndrei\n".encode("latin-1"))
        names["latin"] = str(tmp_path / "latin.txt")
        assert cli.run(main, [argument.format(**names) for argument in arguments]) == 2
        captured = capsys.readouterr()
        assert captured.err.startswith("error: ") and message.format(**names) in captured.err

    @pytest.mark.parametrize(
        "command", [["-m", "transformer_mt.evaluate"], *thorough(["-m", "transformer_mt", "evaluate"])]
    )
    def test_end_with_status_2_and_no_traceback(self, files, command):
        found = run(*command, "--hypothesis", files[0], "--reference", "none.txt")
        assert (found.returncode, found.stdout) == (2, "")
        assert "none.txt" in found.stderr and "Traceback" not in found.stderr

    @pytest.mark.thorough
    def test_of_the_script_end_likewise(self, files):
        found = run(ROOT / "scripts/evaluate_bleu.py", files[0], "none.txt")
        assert found.returncode == 2 and "none.txt" in found.stderr and "Traceback" not in found.stderr


class Dictionary:
    """A stand-in for a trained translator."""

    calls: list[tuple[list[Path], str, int]] = []  # noqa: RUF012 - it is emptied before each test
    marks: dict[str, dict[str, object]] = {}  # noqa: RUF012 - likewise

    says = HYPOTHESES

    def __init__(self, models: list[Path], device: str) -> None:
        self.models, self.device = [model.absolute() for model in models], device
        self.tokenizer = None
        self.engine = SimpleNamespace(hardware="CPU")

    @classmethod
    def load(cls, models: list[Path], device: str, **_: object) -> "Dictionary":
        return cls(models, device)

    def translations(self, lines, decoding, scores, progress):
        self.calls.append((self.models, self.device, decoding.beam_size))
        texts = dict(zip(["dog", "house", "he"], self.says, strict=True))
        return [[Translation(texts[line], -1.0, -1.0, **self.marks.get(line, {}))] for line in lines]


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A run as `prepare`, `train` and `average` leave it, with two test sets."""
    monkeypatch.setattr(evaluate, "Translator", Dictionary)
    monkeypatch.chdir(tmp_path)
    Dictionary.calls.clear()
    Dictionary.marks.clear()
    overrides = ["data_dir=data", "run_dir=runs/x", "corpus.test={news: a, talks: b}"]
    config = dump_config(load_config(ROOT / "configs/demo_en_de.yaml", overrides))
    model = tmp_path / "runs/x/model"
    model.mkdir(parents=True)
    (model / "model.safetensors").touch()
    for directory in (model, model.parent):
        (directory / "config.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "data/test").mkdir(parents=True)
    for name in ("news", "talks"):
        write(tmp_path / f"data/test/{name}.source.txt", ["dog", "house", "he"])
    write(tmp_path / "data/test/news.target.txt", REFERENCES)
    write(tmp_path / "data/test/talks.target.txt", OTHERS)
    data, names = tmp_path / "data", [file for name in ("news", "talks") for file in files_of(f"test/{name}")]
    write_sums(data, names)
    return model.parent


def in_chinese(run_dir, override):
    """Let a text of a run have another target language than the others."""
    for directory in (run_dir, run_dir / "model"):
        config = load_config(directory / "config.yaml", [override])
        (directory / "config.yaml").write_text(dump_config(config), encoding="utf-8")


class TestModel:
    def test_scores_every_test_set(self, trained, capsys):
        assert main(["runs/x"]) == 0
        scores = written(trained / "evaluation/scores.json")
        assert list(scores) == ["news", "talks"]
        for name, references in (("news", REFERENCES), ("talks", OTHERS)):
            expected = sacrebleu.BLEU().corpus_score(HYPOTHESES, [references]).score
            assert scores[name]["scores"]["BLEU"]["value"] == expected
            text = (trained / f"evaluation/{name}.hypotheses.txt").read_bytes().decode()
            assert text == "".join(line + "\n" for line in HYPOTHESES)
        assert scores["news"]["num_lines"] == 3
        assert scores["news"]["decoding"]["beam_size"] == 4
        assert scores["news"]["model"] == "runs/x/model"
        assert scores["news"]["seconds"] >= 0 and scores["news"]["sentences_per_second"] > 0
        printed = capsys.readouterr().out
        for said in ("news   BLEU ", "talks  TER ", "runs/x/evaluation/scores.json", "echo dog | "):
            assert said in printed
        assert printed.index("evaluation") > printed.index("nrefs:1|")

    def test_lines_that_were_split_or_should_be_looked_at_are_told(self, trained, capsys):
        Dictionary.marks |= {"dog": {"num_parts": 2}, "he": {"is_short": True, "at_limit": True}}
        assert main(["runs/x", "--test", "news"]) == 0
        said = capsys.readouterr()
        assert "beam_size 4, 1 line split at ends of sentences" in said.out
        assert [line.rpartition(": ")[2] for line in said.err.splitlines()] == ["look at line 3"] * 2
        scores = written(trained / "evaluation/scores.json")["news"]
        assert [scores[f"num_{kind}"] for kind in ("split", "short", "at_limit")] == [1, 1, 1]

    def test_a_line_that_cannot_be_translated_is_named_with_its_test_set(self, trained, capsys, monkeypatch):
        def broken(*_, **__):
            raise NotFiniteError.of_line(2)

        monkeypatch.setattr(Dictionary, "translations", broken)
        assert cli.run(main, ["runs/x", "--test", "news"]) == 2
        assert says(capsys.readouterr().err, "test-set-wrong", "news", "line 2")

    @pytest.mark.parametrize(
        "order", [["RUN", "beam_size=7", "--test", "talks"], ["--test", "talks", "RUN", "beam_size=7"]]
    )
    def test_one_test_set_with_other_settings(self, trained, order):
        json_file = trained / "copy.json"
        arguments = [str(trained) if argument == "RUN" else argument for argument in order]
        assert main([*arguments, "--device", "cpu", "--json", str(json_file)]) == 0
        assert Dictionary.calls == [([trained / "model"], "cpu", 7)]
        assert json_file.read_bytes() == (trained / "evaluation/scores.json").read_bytes()
        scores = written(json_file)
        assert list(scores) == ["talks"] and scores["talks"]["decoding"]["beam_size"] == 7

    def test_one_test_set_leaves_the_scores_of_the_others(self, trained):
        main([str(trained)])
        scores_file = trained / "evaluation" / "scores.json"
        main([str(trained), "--test", "talks", "beam_size=7"])
        scores = written(scores_file)
        assert scores["talks"]["decoding"]["beam_size"] == 7
        assert "news" in scores

    @pytest.mark.parametrize("kind", ["file", "link", "directory"])
    def test_translations_of_the_user_stay(self, trained, tmp_path, capsys, kind):
        (tmp_path / "victim").write_text("mine")
        for name in ("news.hypotheses.txt", own_name("news.hypotheses.txt"), "scores.json", "notes.txt"):
            place(trained / "evaluation" / name, kind, tmp_path / "victim")
            before = tree(tmp_path), tree(trained)
            assert cli.run(main, [str(trained)]) == 2
            assert name in capsys.readouterr().err and not Dictionary.calls
            assert (tree(tmp_path), tree(trained)) == before
            shutil.rmtree(trained / "evaluation")

    @pytest.mark.parametrize("content", ["mine", "[]", '{"a": {"b": 1}}'])
    def test_other_content_in_place_of_the_scores_stays_and_is_refused_before_translating(
        self, trained, tmp_path, capsys, content
    ):
        main([str(trained)])
        Dictionary.calls.clear()
        for path in (trained / "evaluation" / "scores.json", tmp_path / "mine.json"):
            path.write_text(content)
            assert cli.run(main, [str(trained), "--json", str(path)]) == 2
            assert says(capsys.readouterr().err, "scores-file-not-ours", str(path))
            assert path.read_text() == content and not Dictionary.calls
            path.unlink()

    def test_results_lie_in_the_run_or_with_a_model_that_left_it(self, trained, tmp_path):
        main([str(trained / "model")])
        assert (trained / "evaluation/scores.json").is_file() and not (trained / "model/evaluation").exists()
        elsewhere = (trained / "model").rename(tmp_path / "mine")
        main([str(elsewhere)])
        assert (elsewhere / "evaluation/scores.json").is_file()

    def test_intervals_are_told_where_asked_for(self, trained, capsys):
        main([str(trained), "--test", "news", "--confidence"])
        result = written(trained / "evaluation/scores.json")["news"]
        assert result["scores"]["BLEU"]["interval"] > 0 and "|bs:1000|" in result["scores"]["TER"]["signature"]
        value = result["scores"]["BLEU"]["value"]
        printed = capsys.readouterr().out
        assert f"news  BLEU   {value:.1f} ± {result['scores']['BLEU']['interval']:.1f}  nrefs:1|bs:1000|" in printed
        main([str(trained), "--test", "news"])
        result = written(trained / "evaluation/scores.json")["news"]
        assert result["scores"]["BLEU"]["interval"] is None

    def test_settings_are_chosen_on_the_validation_set_and_both_are_written_down(
        self, trained, tmp_path, capsys, monkeypatch
    ):
        write(tmp_path / "data/valid.source.txt", ["dog", "house"])
        write(tmp_path / "data/valid.target.txt", HYPOTHESES[:2])
        names = [*files_of("test/news"), *files_of("test/talks"), "valid.source.txt", "valid.target.txt"]
        write_sums(tmp_path / "data", names)
        good = Dictionary.translations

        def bad_unless_9(self, lines, decoding, scores, progress):
            found = good(self, lines, decoding, scores, progress)
            return found if decoding.beam_size == 9 else [[Translation("x", -1.0, -1.0)] for _ in lines]

        monkeypatch.setattr(Dictionary, "translations", bad_unless_9)
        assert main([str(trained), "--tune", "beam_size=8,9", "length_penalty=1", "--test", "news"]) == 0
        said = capsys.readouterr().out
        assert "bleu 100.00  beam_size=9 length_penalty=1\nbest on the 2 sentences" in said
        scores = written(trained / "evaluation/scores.json")["news"]
        assert (scores["decoding"]["beam_size"], scores["decoding"]["length_penalty"]) == (9, 1.0)
        assert scores["tuning"]["chosen"] == ["beam_size=9", "length_penalty=1"]
        assert [trial["settings"][0] for trial in scores["tuning"]["trials"]] == ["beam_size=8", "beam_size=9"]
        assert [call[2] for call in Dictionary.calls] == [8, 9, 9]  # the test set only once, with the best
        for wrong in ("beam_size=0,4", "training.seed=1,2", "nothing=1"):
            assert cli.run(main, [str(trained), "--tune", wrong]) == 2

    def test_the_validation_set_is_scored_in_its_own_language(self, trained, tmp_path, monkeypatch):
        write(tmp_path / "data/valid.source.txt", ["dog"])
        write(tmp_path / "data/valid.target.txt", HYPOTHESES[:1])
        names = [*files_of("test/news"), *files_of("test/talks"), "valid.source.txt", "valid.target.txt"]
        write_sums(tmp_path / "data", names)
        in_chinese(trained, "corpus.valid={path: v, target_language: zh}")
        languages = []

        def tuned(*arguments):
            languages.append(arguments[-1])
            return tune(*arguments)

        monkeypatch.setattr(evaluate, "tune", tuned)
        assert main([str(trained), "--tune", "beam_size=8", "--test", "news"]) == 0
        assert languages == ["zh"]

    def test_weaknesses_are_told_where_asked_for(self, trained, capsys):
        assert main([str(trained), "--analyse", "--test", "news"]) == 0
        said = capsys.readouterr().out
        assert "news: weaknesses" in said and "words of the source" in said and "the worst lines" in said
        found = written(trained / "evaluation/scores.json")["news"]["analysis"]
        assert found["by_length"][0]["num_lines"] == 3 and found["worst"][0]["source"] in ("dog", "house", "he")

    def test_lengths_are_in_characters_where_the_source_has_no_spaces(self, trained, capsys):
        for config in (trained / "config.yaml", trained / "model/config.yaml"):
            text = config.read_text(encoding="utf-8")
            config.write_text(text.replace("source_language: en", "source_language: zh"), encoding="utf-8")
        main([str(trained), "--test", "news", "--analyse"])
        result = written(trained / "evaluation/scores.json")["news"]
        assert result["analysis"]["unit"] == "character"
        assert [(each["least"], each["most"]) for each in result["analysis"]["by_length"]] == [(2, 2), (3, 3), (5, 5)]
        assert "characters of the source" in capsys.readouterr().out

    def test_unknown_test_set_names_the_known(self, trained, capsys):
        assert cli.run(main, [str(trained), "--test", "demo"]) == 2
        assert says(capsys.readouterr().err, "no-such-test-set", "--test demo", "news, talks")

    def test_what_made_the_model_cannot_change(self, trained, capsys):
        assert cli.run(main, [str(trained), "model.d_model=64"]) == 2
        assert says(capsys.readouterr().err, "override-of-other-section", "decoding")

    def test_missing_texts_are_refused_before_translating(self, trained, tmp_path, capsys):
        (tmp_path / "data/test/talks.target.txt").unlink()
        assert cli.run(main, [str(trained)]) == 2
        error = capsys.readouterr().err
        assert "talks.target.txt" in error and "transformer_mt.prepare" in error and not Dictionary.calls

    @pytest.mark.parametrize("where", ["run", "run/model"])
    def test_data_prepared_anew_with_another_tokenizer_are_refused_unless_named(
        self, trained, tmp_path, capsys, joint_tokenizer, where
    ):
        joint_tokenizer.save(trained / "model")
        config = load_config(trained / "config.yaml")
        summary = {name: getattr(config, name).model_dump() for name in ("corpus", "filters", "tokenizer")}
        path = str(trained.parent / where.replace("run", "x"))
        for digest, status in ((joint_tokenizer.digest, 0), ("0" * 64, 2)):
            (tmp_path / "data/prepare.json").write_text(
                json.dumps(
                    summary
                    | {"digests": {}, "tokenizer_digest": digest, "counts": {}, "corpora": {}, "also_in_training": {}}
                )
            )
            assert cli.run(main, [path]) == status
        error = capsys.readouterr().err
        digests = "00000000", joint_tokenizer.digest[:8]
        assert says(error, "test-of-other-tokenizer", *digests, "model ", "data_dir=data;")
        assert len(Dictionary.calls) == 2, "nothing was translated of the second"
        assert cli.run(main, [path, "data_dir=data"]) == 0

    def test_texts_of_unequal_length_are_refused_before_translating(self, trained, tmp_path, capsys):
        write(tmp_path / "data/test/talks.target.txt", OTHERS[:2])
        renew_sums(tmp_path / "data")
        assert cli.run(main, [str(trained)]) == 2
        assert "talks.source.txt has 3 lines" in capsys.readouterr().err and not Dictionary.calls

    def test_a_failed_evaluation_leaves_the_scores_of_the_last(self, trained):
        main([str(trained)])
        before = (trained / "evaluation/scores.json").read_bytes()
        write(Path("data/test/talks.target.txt"), ["\u2581a", "b", "c"])
        assert cli.run(main, [str(trained)]) == 2
        assert (trained / "evaluation/scores.json").read_bytes() == before
        assert not list((trained / "evaluation").glob(".*"))


@pytest.mark.thorough
def test_help_says_what_it_reads_and_writes():
    found = run("-m", "transformer_mt.evaluate", "--help")
    assert found.returncode == 0
    for said in ("Reads", "writes evaluation/", "example:", "--hypothesis"):
        assert said in found.stdout


class TestCompare:
    @pytest.fixture
    def two(self, trained, monkeypatch):
        """Two runs that differ in a setting, evaluated; the second writes other words."""
        other = trained.parent / "y"
        shutil.copytree(trained, other)
        for directory in (other, other / "model"):
            config = load_config(directory / "config.yaml", ["training.clip_norm=2.0", "run_dir=runs/y"])
            (directory / "config.yaml").write_text(dump_config(config), encoding="utf-8")
        for run_dir in (trained, other):
            save_file({}, run_dir / "model" / "model.safetensors", {"made_of": "mean of checkpoints 1 to 3"})
            assert main([str(run_dir)]) == 0
        monkeypatch.setattr(Dictionary, "says", REFERENCES)
        assert main([str(other), "--test", "news"]) == 0
        return ["runs/x", "runs/y"]

    def test_runs_are_compared_on_every_test_set(self, two, tmp_path, capsys):
        capsys.readouterr()
        assert main(["--compare", *two, "--json", str(tmp_path / "found.json"), "--metrics", "bleu", "chrf++"]) == 0
        said = capsys.readouterr().out
        assert "news: 3 sentences, 1 reference; baseline: runs/x" in said and "talks: 3 sentences" in said
        assert re.search(r" same text$", said, flags=re.MULTILINE)
        assert "runs/y has the same translations as runs/x" in said
        assert "chrF2++" in said and "TER" not in said
        news, talks = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
        assert (news["test"], talks["test"], news["baseline"]) == ("news", "talks", "runs/x")
        assert news["metrics"][0]["systems"][1]["value"] == pytest.approx(100)

    def test_runs_that_differ_only_by_the_seed_are_one_system(self, two, capsys):
        clip_norm = load_config("runs/x/config.yaml").training.clip_norm
        for directory in ("runs/y", "runs/y/model"):
            config = load_config(f"{directory}/config.yaml", [f"training.clip_norm={clip_norm}", "training.seed=2"])
            Path(directory, "config.yaml").write_text(dump_config(config), encoding="utf-8")
        capsys.readouterr()
        assert main(["--compare", *two, "--test", "news", "--metrics", "bleu"]) == 0
        said = capsys.readouterr().out
        assert "baseline: runs/{x,y}" in said and "          p  seeds" in said
        [low, high] = re.findall(r"runs/\{x,y\} .* 2, (\S+) to (\S+)$", said, flags=re.MULTILINE)[0]
        assert float(low) < 99 and high == "100.00"
        assert said.endswith("These runs differ only by the seed: there is nothing to compare.\n")

    @pytest.mark.thorough
    def test_each_test_set_is_compared_in_its_own_language(self, two, trained, capsys):
        for run_dir in two:
            in_chinese(Path(run_dir), "corpus.test.talks={path: b, target_language: zh}")
            assert main([run_dir]) == 0
        assert capsys.readouterr().out.count("tok:zh") >= 2
        assert main(["--compare", *two, "--metrics", "bleu"]) == 0
        news, talks = capsys.readouterr().out.split("talks: 3 sentences")
        assert "tok:13a" in news and "tok:zh" not in news
        assert "tok:zh" in talks and "tok:13a" not in talks
        results = [read_scores(Path(run_dir, "evaluation/scores.json")) for run_dir in two]
        configs = [load_config(Path(run_dir, "config.yaml")) for run_dir in two]
        runs = [Run(name, None, *of, results=found) for name, *of, found in zip(two, configs, results, strict=True)]
        reports = gather_tests(runs, defaultdict(list))
        tables = {report.name: report.comparison["metrics"][0]["signature"] for report in reports}
        assert "tok:13a" in tables["news"] and "tok:zh" in tables["talks"]

    def test_files_are_compared_with_their_references(self, tmp_path, files, capsys):
        other = write(tmp_path / "other.txt", REFERENCES)
        assert main(["--compare", files[0], other, "--reference", files[1]]) == 0
        said = capsys.readouterr().out
        assert f"files: 3 sentences, 1 reference; baseline: {files[0]}" in said

    def test_settings_of_decoding_and_old_translations_are_told(self, two, trained, capsys):
        assert main(["runs/y", "beam_size=7"]) == 0
        save_file({}, trained / "model" / "model.safetensors", {"made_of": "mean of checkpoints 4 to 6"})
        capsys.readouterr()
        assert main(["--compare", *two, "--test", "news"]) == 0
        said = capsys.readouterr().err
        assert "note: runs/y was decoded with other settings than runs/x: beam_size: 4 in runs/x, 7" in said
        assert "warning: runs/x: the translations are from an earlier model (mean of checkpoints 1 to 3)" in said

    def test_mistakes_are_named(self, two, tmp_path, files, capsys):
        (tmp_path / "mine.json").write_text('["mine"]')
        for arguments, *expected in [
            (["runs/x"], "compare-needs-two"),
            (["runs/x", "nowhere"], "not-run-model-file", "nowhere:"),
            ([*two, "--test", "none"], "no-such-test-set", "none"),
            ([*two, "--reference", files[1]], "reference-language-for-files"),
            ([files[0], files[0]], "compare-files-needs-reference"),
            ([*two, "--analyse"], "options-exclude-another", "--analyse"),
            ([*two, "--json", str(tmp_path / "mine.json")], "comparison-place-taken", "mine.json"),
        ]:
            assert cli.run(main, ["--compare", *arguments]) == 2
            assert says(capsys.readouterr().err, *expected)
        assert (tmp_path / "mine.json").read_text() == '["mine"]'

    @pytest.mark.parametrize(
        "changed", ["runs/y/evaluation/talks.hypotheses.txt", *thorough("data/test/talks.source.txt")]
    )
    def test_translations_that_are_not_those_of_the_scores_are_refused(self, two, tmp_path, capsys, changed):
        lines = (tmp_path / changed).read_text(encoding="utf-8").splitlines()
        write(tmp_path / changed, [*lines[:2], "Nein."])
        renew_sums(tmp_path / "data")
        assert main(["--compare", *two, "--test", "news"]) == 0
        run = "runs/y" if changed.startswith("runs") else "runs/x"
        assert cli.run(main, ["--compare", *two]) == 2
        error = capsys.readouterr().err
        command = f"python -m transformer_mt.evaluate {run} --test talks;"
        assert says(error, "translations-outdated", f"{run}/evaluation/talks.hypotheses.txt", command)

    def test_runs_with_other_references_or_without_translations_are_refused(self, two, trained, tmp_path, capsys):
        shutil.copytree(tmp_path / "data", tmp_path / "others")
        write(tmp_path / "others/test/news.target.txt", [*REFERENCES[:2], "Er kommt."])
        write_sums(tmp_path / "others", files_of("test/news"))
        config = tmp_path / "runs/y/model/config.yaml"
        config.write_text(config.read_text().replace("data_dir: data", "data_dir: others"))
        assert cli.run(main, ["--compare", *two, "--test", "news"]) == 2
        assert says(capsys.readouterr().err, "references-differ", "news")
        config.write_text(config.read_text().replace("data_dir: others", "data_dir: data"))
        (trained / "evaluation/news.hypotheses.txt").unlink()
        assert cli.run(main, ["--compare", *two]) == 2
        assert "python -m transformer_mt.evaluate runs/x --test news" in capsys.readouterr().err
