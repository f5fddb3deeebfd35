"""Tags at the beginning of lines: every part of a line has its line's tag, and odd beginnings are told."""

import logging
import re

import pytest
from helpers.echo import Echo
from helpers.messages import message
from helpers.tiny import demo_pairs

from transformer_mt.base.errors import TranslationError
from transformer_mt.decoding.line_parts import Tags
from transformer_mt.decoding.scorer import Scorer
from transformer_mt.decoding.translator import Translator
from transformer_mt.settings.corpus_settings import CorpusConfig
from transformer_mt.settings.search_settings import DecodingConfig
from transformer_mt.settings.text_settings import TokenizerConfig
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.training_lines import TrainingLines

ONE = TrainingLines(pairs=9, usual_sentences=1, most_sentences=2, usual_pieces=30, most_pieces=60, least_ratio=0.5)
EN_DE = {"name": "en_de", "path": "x", "source": "en", "target": "de", "tag": "<2de>"}
DE_EN = {"name": "de_en", "path": "x", "source": "de", "target": "en", "tag": "<2en>"}
TO_ZH = {"name": "en_zh", "path": "x", "source": "en", "target": "zh", "target_language": "zh", "tag": "<bt> <2zh>"}
FROM_ZH = {"name": "zh_en", "path": "x", "source_language": "zh", "source": "zh", "target": "en", "tag": "<2en>"}


def corpus(*train: dict[str, str], **others: object) -> CorpusConfig:
    languages = {"source_language": "en", "target_language": "de"}
    content = {**languages, "train": list(train), "valid": "v", "test": {}, **others}
    return CorpusConfig.model_validate(content)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    sources, targets = zip(*demo_pairs(300), strict=True)
    symbols = ["<name>", "<2de>", "<2en>", "<bt>", "<2zh>"]
    return Tokenizer.train(sources, targets, TokenizerConfig(vocab_size=500), symbols)


@pytest.fixture
def echo(tokenizer):
    """A function that makes a Translator which echoes, of a model trained on such corpora."""

    def make(*train, max_positions=1000, longest_part=None, trained=ONE):
        tags = Tags.of(corpus(*(train or (EN_DE, DE_EN))))
        engine, settings = Echo(max_positions), DecodingConfig()
        return Translator(engine, tokenizer, settings, trained, longest_part, ("en", "de"), tags=tags)

    return make


def sources_of(translator):
    return [translator.tokenizer.decode_target(sentence.source) for sentence in translator.engine.sentences]


class TestParts:
    def test_each_sentence_of_a_tagged_line_has_the_tag(self, echo):
        translator = echo()
        found = translator.translate(["<2de> A dog.  He runs. It is so.", "<2en> Ein Hund. Er rennt."])
        assert sources_of(translator) == [
            "<2de> A dog.",
            "<2de> He runs.",
            "<2de> It is so.",
            "<2en> Ein Hund.",
            "<2en> Er rennt.",
        ]
        assert found == ["<2de> A dog.  <2de> He runs. <2de> It is so.", "<2en> Ein Hund. <2en> Er rennt."]

    def test_several_tokens_are_one_tag(self, echo):
        translator = echo(TO_ZH, DE_EN)
        translator.translate(["<bt> <2zh> A dog. He runs."])
        assert sources_of(translator) == ["<bt> <2zh> A dog.", "<bt> <2zh> He runs."]

    @pytest.mark.parametrize("line", ["<2de>A dog.", " <2de>   A dog.", "<2de>\tA dog. "])
    def test_the_space_after_a_tag_is_as_in_training(self, echo, tokenizer, line):
        translator = echo()
        translator.translate([line])
        assert translator.engine.sentences[0].source == tokenizer.encode_source(["<2de> A dog."])[0]

    def test_pieces_of_a_sentence_that_is_cut_have_the_tag_too(self, echo, tokenizer, caplog):
        translator = echo(max_positions=20, longest_part=12)
        line = "<2en> " + " ".join(["Der Hund sieht das Haus"] * 4)
        translator.translate([line])
        tag = tokenizer.encode_source(["<2en>"])[0][:-1]
        sources = [sentence.source for sentence in translator.engine.sentences]
        assert len(sources) > 2
        assert all(source[: len(tag)] == tag and len(source) <= 20 for source in sources)
        joined = [i for source in sources for i in source[len(tag) : -1]]
        assert [*tag, *joined] == tokenizer.encode_source([line])[0][:-1]
        assert len({sentence.number for sentence in translator.engine.sentences}) == len(sources)
        assert f"{len(tokenizer.encode_source([line])[0]):,} subword pieces" in caplog.text

    def test_a_part_with_its_tag_fits_exactly(self, echo, tokenizer):
        line = "<2de> A dog sees the house"
        size = len(tokenizer.encode_source([line])[0])
        for room, parts in ((size, 1), (size - 1, 2)):
            translator = echo(max_positions=room, longest_part=room - 1)
            translator.translate([line])
            assert len(translator.engine.sentences) == parts
            assert max(len(sentence.source) for sentence in translator.engine.sentences) <= room

    def test_a_tag_counts_neither_as_a_piece_nor_as_a_blank_line(self, echo, tokenizer):
        pieces = len(tokenizer.encode_source(["A dog. He runs."])[0]) - 1
        fits = ONE.model_copy(update={"usual_sentences": 2, "usual_pieces": pieces})
        translator = echo(trained=fits)
        assert translator.translate(["<2de> A dog. He runs.", "<2de> ", ""]) == ["<2de> A dog. He runs.", "", ""]
        assert len(translator.engine.sentences) == 1

    def test_a_symbol_at_the_beginning_is_no_tag(self, echo):
        translator = echo()
        translator.translate(["<2de> <name> is here. He runs."])
        assert sources_of(translator) == ["<2de> <name> is here.", "<2de> He runs."]

    def test_lines_of_a_model_without_tags_stay_as_they_are(self, echo):
        translator = echo({"name": "a", "path": "x"})
        translator.translate(["<2de>A dog. He runs."])
        assert sources_of(translator) == ["<2de>A dog.", "He runs."]

    def test_in_alignments_the_tag_is_the_first_word_of_the_line(self, echo):
        [[found]] = echo().translations(["<2de> A dog.  He runs fast. So."], alignment=True)
        words = "<2de> A dog. He runs fast. So.".split()
        of_target = ["<2de>", "A", "dog.", "<2de>", "He", "runs", "fast.", "<2de>", "So."]
        assert [target for _, target in found.alignment] == list(range(len(of_target)))
        assert [words[source] for source, _ in found.alignment] == of_target

    @pytest.mark.parametrize("start", ["<2de> ", "<2de>", " <2de> ", "<2de>   ", "<2de> \t"])
    def test_bullets_after_a_tag_stay_and_count_as_words(self, echo, start):
        translator = echo()
        [[found]] = translator.translations([f"{start}- A dog. He runs. "], alignment=True)
        assert sources_of(translator) == ["<2de> A dog.", "<2de> He runs."]
        spaces = start.replace("<2de> ", "", 1).replace("<2de>", "")
        assert found.text == f"{spaces}- <2de> A dog. <2de> He runs. "
        assert [source for source, _ in found.alignment] == [1, 0, 2, 3, 0, 4, 5]
        assert [target for _, target in found.alignment] == list(range(7))

    def test_a_tag_with_more_pieces_than_the_model_takes_is_named(self, echo):
        with pytest.raises(TranslationError, match=message("tag-too-long", "<2de> <2de>", "6")):
            echo(max_positions=6).translate(["<2de> " * 9 + "A"])


class TestLanguages:
    def test_the_tag_says_whether_sentences_have_spaces_between_them(self, echo):
        translator = echo(EN_DE, TO_ZH)
        line = "A dog. He runs."
        assert translator.translate([f"<2de> {line}"]) == ["<2de> A dog. <2de> He runs."]
        assert translator.translate([f"<bt> <2zh> {line}"]) == ["<bt> <2zh> A dog.<bt> <2zh> He runs."]

    def test_the_tag_says_whether_alignments_are_of_characters(self, echo):
        translator = echo(EN_DE, FROM_ZH)
        [[found]] = translator.translations(["<2en> 一二。三四"], alignment=True)
        line = "<2en>一二。三四"
        assert found.text == "<2en> 一二。 <2en> 三四"
        assert {(line[source], target) for source, target in found.alignment} == {("一", 1), ("三", 3)}

    def test_corpora_say_their_languages(self):
        config = corpus(EN_DE, DE_EN, TO_ZH, FROM_ZH)
        found = {text.name: config.languages_of(text) for text in config.training_corpora}
        assert found == {"en_de": ("en", "de"), "de_en": ("de", "en"), "en_zh": ("en", "zh"), "zh_en": ("zh", "en")}

    @pytest.mark.parametrize(
        ("split", "expected"),
        [
            ("prefix", ("en", "de")),
            ({"source": "a/b.de.gz", "target": "a/b.en.gz"}, ("de", "en")),
            ({"path": "f.jsonl", "source": "translation.de", "target": "translation.en"}, ("de", "en")),
            ({"path": "f", "source": "src", "target": "tgt"}, ("en", "de")),
            ({"path": ".tsv", "source": 2, "target": 1}, ("en", "de")),
            (
                {"path": ".tsv", "source": 2, "target": 1, "source_language": "de", "target_language": "en"},
                ("de", "en"),
            ),
            ({"path": "f.tmx", "target": "fr", "target_language": "fr"}, ("en", "fr")),
        ],
    )
    def test_a_split_says_its_languages_by_what_its_parts_end_in(self, split, expected):
        config = corpus(EN_DE, test={"x": split})
        assert config.languages_of(config.test["x"]) == expected

    def test_languages_are_the_suffixes_of_a_prefix(self):
        config = corpus(EN_DE, test={"x": {"path": "f", "source_language": "de", "target_language": "en"}})
        text = config.text_of(config.test["x"])
        assert (text.source, text.target) == ("de", "en")


class TestWarnings:
    def warned(self, translator, caplog, *lines):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            translator.translations(list(lines), first_line=5)
        return [record.getMessage() for record in caplog.records]

    def test_a_line_without_a_tag_is_told_once_with_the_tags(self, echo, caplog):
        translator = echo()
        [message] = self.warned(translator, caplog, "<2de> A dog.", "", "A dog.", "A man.")
        assert message.startswith("warning: line 7 does not begin with <2de> or <2en>, but every line did in training")
        assert self.warned(translator, caplog, "A dog.") == []

    def test_where_some_corpora_had_no_tag_lines_need_none(self, echo, caplog):
        plain = {"name": "plain", "path": "x"}
        assert self.warned(echo(plain, {**EN_DE, "tag": "<bt>"}), caplog, "A dog.", "<bt> A dog.") == []
        assert self.warned(echo(plain), caplog, "A dog.", "<b>A</b> dog.") == []

    def test_tags_that_training_had_in_another_form_are_told(self, echo, caplog):
        [message] = self.warned(echo(TO_ZH, DE_EN), caplog, "<2en> Ein Hund.", "<bt> A dog.")
        assert message.startswith("warning: line 6 does not begin with <bt> <2zh> or <2en>")

    @pytest.mark.parametrize("line", ["<2fr> A dog.", " <2zh-TW>A dog.", "<2de> <2fr> A dog."])
    def test_a_language_that_the_model_does_not_know_is_told_once(self, echo, caplog, line):
        for train in ((EN_DE, DE_EN), ({"name": "plain", "path": "x"}, EN_DE)):
            translator = echo(*train)
            [message] = self.warned(translator, caplog, "<2de> A <2fr> dog.", line, line)
            tag = re.search("<2(fr|zh-TW)>", line)[0]
            assert message.startswith(
                f"warning: line 6 has the tag {tag}, which the model reads as text (its tags are <2de>"
            )
            assert self.warned(translator, caplog, line) == []
        [message] = self.warned(echo({"name": "plain", "path": "x"}), caplog, "<2 > <2nd <22>", line)
        assert message.startswith("warning: line 6 has the tag <2") and "it was trained without tags" in message

    def test_a_scorer_tells_the_same_and_reads_tags_as_in_training(self, tokenizer, caplog):
        class Scores(Echo):
            def score(self, pairs):
                self.pairs = pairs
                return [[-1.0] * len(target) for _, target in pairs]

        scorer = Scorer(Scores(), tokenizer, Tags.of(corpus(EN_DE, DE_EN)))
        for _ in range(2):
            scorer.score(["<2de>A dog.", "A dog."], ["Ein Hund.", "Ein Hund."])
        assert scorer.engine.pairs[0][0] == tokenizer.encode_source(["<2de> A dog."])[0]
        [message] = [record.getMessage() for record in caplog.records]
        assert message.startswith("warning: line 2 does not begin with")
