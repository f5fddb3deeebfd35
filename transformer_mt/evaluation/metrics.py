"""BLEU, chrF2 and TER by sacreBLEU, each with the signature that says how it was computed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never

from sacrebleu.metrics.base import Signature
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest, Result
from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
from sacrebleu.utils import SACREBLEU_DIR

from transformer_mt.errors import EvaluationError
from transformer_mt.evaluation.named_sets import NamedSet, signed
from transformer_mt.languages import NAMES, has_spaces, language_of_script, short_code, split_units
from transformer_mt.wording import counted

MetricName = Literal["bleu", "chrf", "chrf++", "ter"]
METRICS: tuple[MetricName, ...] = ("bleu", "chrf", "ter")
"""What is computed if nothing else is asked for. chrf++ (Popović 2017) also compares words and pairs of words."""
_TOKENISERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
_NEEDS_MECAB = ("ja", "ko")
_FLORES = "flores200"
_GET_FLORES = f"python -c \"from sacrebleu.metrics import BLEU; BLEU(tokenize='{_FLORES}')\""
_LINES_LOOKED_AT = 1000
# SentencePiece marks the beginning of a word, subword-nmt (@@) a word that goes on. A bare @@ is text.
_PIECE = re.compile("\u2581|\\S@@(?=\\s|$)")
_RESAMPLES = 1000
# In a line. sacreBLEU's TER takes 10 to 20 seconds for a pair of lines of 400 words, and hours for 20,000 words.
_MOST_WORDS_FOR_TER = 500


@dataclass(frozen=True)
class MetricScore:
    """The score of a text by one metric.

    BLEU, chrF2 and chrF2++ are percentages, higher is better. TER is the edits for 100 reference words, lower is
    better.
    """

    name: str
    value: float
    signature: str
    interval: float | None = None
    """Half of the 95 % confidence interval, so that a score is written as 41.0 ± 1.2; None if not asked for."""


@dataclass(frozen=True)
class Bucket:
    """BLEU, in percent, of the sentences whose source has `shortest` to `longest` words or characters."""

    shortest: int
    longest: int
    unit: str
    """word; or character, for a source language without spaces between words."""
    num_sentences: int
    bleu: float


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    target_language: str = "",
    names: Sequence[str] = (),
    *,
    confidence: bool = False,
    metrics: Sequence[MetricName] = METRICS,
    named: NamedSet | None = None,
) -> list[MetricScore]:
    """Score detokenised lines against one or more complete sets of references: BLEU, chrF2 and TER, or `metrics`.

    TER is left out if a line is too long for it (`ter_warning`). `target_language` is a code such as de, zh-CN or
    jpn_Jpan, and chooses the tokeniser of BLEU: zh, ja-mecab or ko-mecab for these three languages; flores200 for Thai,
    Lao, Khmer and Burmese if sacreBLEU has downloaded its model, otherwise char; 13a for all others (Post 2018). For
    the same seven languages, TER splits Chinese characters and Asian punctuation (norm:yes, asian:yes).
    `names` are the names of the hypotheses and of each reference in errors. `confidence` adds confidence intervals from
    1,000 bootstrap samples of the lines (Koehn 2004), which sacreBLEU draws and notes in the signature. `named`, a test
    set of sacreBLEU, is noted there, too.
    Raises EvaluationError if there are no lines, if the texts have unequal numbers of lines, if a line has subword
    pieces in place of words, or if a tokeniser is not installed.
    """
    names = names or ["hypothesis", *(f"reference {number + 1}" for number in range(len(references)))]
    check_aligned([hypotheses, *references], names)
    check_words([hypotheses, *references], names)
    scores = []
    for metric in metrics_of(metrics, target_language, [hypotheses, *references], names).values():
        result = metric.corpus_score(hypotheses, references)
        signature, interval = metric.get_signature(), None
        if confidence:
            signature, interval = _resampled(metric, hypotheses, references)
        scores.append(MetricScore(result.name, float(result.score), signed(signature, named), interval))
    return scores


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    width: int,
    target_language: str = "",
    source_language: str = "",
) -> list[Bucket]:
    """BLEU by the length of the source: for sources of 1 to `width` words, of width + 1 to 2 width words, and so on.

    Words are what spaces separate; for a source language without spaces, characters are counted. A blank source belongs
    to the shortest. Buckets without sentences are left out.
    """
    check_aligned([sources, hypotheses, *references], ["source", "hypothesis", *["reference"] * len(references)])
    lines_of: dict[int, list[int]] = {}
    spaced = has_spaces(source_language)
    for line, source in enumerate(sources):
        lines_of.setdefault(max(len(split_units(source, spaced)) - 1, 0) // width, []).append(line)
    unit = "word" if spaced else "character"
    metric, buckets = _bleu(target_language), []
    for number, lines in sorted(lines_of.items()):
        said = [hypotheses[line] for line in lines]
        wanted = [[reference[line] for line in lines] for reference in references]
        value = float(metric.corpus_score(said, wanted).score)
        buckets.append(Bucket(number * width + 1, (number + 1) * width, unit, len(lines), value))
    return buckets


def bleu(hypotheses: Sequence[str], references: Sequence[str], target_language: str = "") -> float:
    """BLEU in percent, as `score_corpus` computes it. For validation: takes any output of a half-trained model."""
    check_aligned([hypotheses, references], ["hypothesis", "reference"])
    return float(_bleu(target_language).corpus_score(hypotheses, [references]).score)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """chrF2 in percent, as `score_corpus` computes it. For validation."""
    check_aligned([hypotheses, references], ["hypothesis", "reference"])
    return float(CHRF().corpus_score(hypotheses, [references]).score)


def check_aligned(texts: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Raise EvaluationError unless all texts have the same number of lines, and at least one."""
    if len(texts) < 2:
        raise EvaluationError("there is nothing to compare with; give at least one reference")
    for name, lines in zip(names, texts, strict=True):
        if len(lines) != len(texts[0]):
            raise EvaluationError(
                f"{names[0]} has {counted(len(texts[0]), 'line')}, {name} has {len(lines):,}; "
                "line n of each must belong to the same sentence"
            )
    if not texts[0]:
        raise EvaluationError(f"{' and '.join(names)} have no lines; there is nothing to score")


def language_warning(name: str, lines: Sequence[str], target_language: str) -> str | None:
    """A warning about scores that mean nothing in the language of these lines; None if all mean something."""
    code = short_code(target_language)
    if code in NAMES:
        if code in _TOKENISERS:
            return None
        return (
            f"TER compares words, and {NAMES[code]} has no spaces between words: this TER means nothing. Compare "
            f"chrF2, or BLEU, which is computed on {_units_of_bleu(code)}"
        )
    found = language_of_script(lines[:_LINES_LOOKED_AT])
    if found is None:
        return None
    if has_spaces(found):
        why = f"BLEU of {NAMES[found]} is not computed with 13a: this BLEU cannot be compared with others"
    else:
        why = f"13a does not cut {NAMES[found]} into words: this BLEU means nothing"
    score_files = f"score the files with --hypothesis, --reference and --language {found}"
    if target_language:
        score_files = f"it should be corpus.target_language={found}, not {target_language}: {score_files}"
    return f"{name} looks like {NAMES[found]}, and {why}: {score_files}"


def ter_warning(texts: Sequence[Sequence[str]], names: Sequence[str], target_language: str) -> str | None:
    """A warning that TER is left out, because it would take too long for a line with that many words; or None."""
    spaced = has_spaces(target_language)
    unit = "word" if spaced else "character"
    for name, lines in zip(names, texts, strict=True):
        for number, line in enumerate(lines, start=1):
            if len(line) > _MOST_WORDS_FOR_TER and (length := len(split_units(line, spaced))) > _MOST_WORDS_FOR_TER:
                return (
                    f"TER is left out: {name}, line {number}, has {counted(length, unit)}, and to compute it would "
                    f"take too long. It is computed if no line has more than {_MOST_WORDS_FOR_TER}"
                )
    return None


def check_tokeniser(target_language: str) -> None:
    """Raise EvaluationError if BLEU for this language needs a package that is not installed."""
    _bleu(target_language)


def metrics_of(
    metrics: Sequence[MetricName], target_language: str, texts: Sequence[Sequence[str]], names: Sequence[str]
) -> dict[str, BLEU | CHRF | TER]:
    """Return these metrics of sacreBLEU, by name, in this order; without TER if a text is too long for it."""
    found: dict[str, BLEU | CHRF | TER] = {}
    for metric in dict.fromkeys(metrics):
        match metric:
            case "bleu":
                found[metric] = _bleu(target_language)
            case "chrf":
                found[metric] = CHRF()
            case "chrf++":
                found[metric] = CHRF(word_order=2)
            case "ter":
                if ter_warning(texts, names, target_language) is None:
                    found[metric] = _ter(target_language)
            case _:
                assert_never(metric)
    return found


def _ter(target_language: str) -> TER:
    asian = short_code(target_language) in NAMES
    return TER(normalized=asian, asian_support=asian)  # sacreBLEU's asian support has no effect without the other


def _flores_model() -> Path:
    """Where sacreBLEU keeps the sentencepiece model of flores200 once it has downloaded it."""
    return Path(SACREBLEU_DIR, "models", Path(SPM_MODELS[_FLORES]["url"]).name)


def _tokeniser(language: str) -> str:
    """The name of sacreBLEU's tokeniser for a language, given by its short code."""
    if language in _TOKENISERS or has_spaces(language):
        return _TOKENISERS.get(language, "13a")
    return _FLORES if _flores_model().is_file() else "char"


def _units_of_bleu(language: str) -> str:
    """Say in a warning what BLEU compares in a language without spaces and without a tokeniser of its own."""
    if _tokeniser(language) == _FLORES:
        return f"subword pieces here ({_FLORES})"
    return (
        f"characters here, because the model of sacreBLEU's tokeniser {_FLORES}, with which many report it, is not on "
        f"this machine: {_GET_FLORES} downloads it"
    )


def _bleu(target_language: str) -> BLEU:
    language = short_code(target_language)
    tokeniser = _tokeniser(language)
    try:
        # `force` silences sacreBLEU's warning about tokenised text, as we give our own. It changes no score.
        return BLEU(tokenize=tokeniser, force=True)
    except (RuntimeError, OSError) as error:
        if tokeniser == _FLORES:
            raise EvaluationError(
                f"{_flores_model()}: sacreBLEU's tokeniser {_FLORES} cannot read its model ({error}); delete the file, "
                f"and if you want it, {_GET_FLORES} downloads it anew"
            ) from None
        if language not in _NEEDS_MECAB:
            raise
        raise EvaluationError(
            f"BLEU for {target_language} needs a word segmenter that is not installed: "
            f'pip install "sacrebleu[{language}]"'
        ) from None


def _resampled(
    metric: BLEU | CHRF | TER, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[Signature, float]:
    """The signature and half of the confidence interval, from a paired test with a single system."""
    systems = [("hypothesis", hypotheses)]
    signatures, results = PairedTest(systems, {"metric": metric}, references, "bs", _RESAMPLES)()
    [(name, signature)] = signatures.items()
    [result] = results[name]
    assert isinstance(result, Result) and result.ci is not None
    return signature, float(result.ci)


def check_words(texts: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Raise EvaluationError if a line has subword pieces in place of words."""
    for name, lines in zip(names, texts, strict=True):
        for number, line in enumerate(lines, start=1):
            piece = _PIECE.search(line)
            if piece:
                raise EvaluationError(
                    f"{name}, line {number}: holds subword pieces ({piece[0]!r} in {line[:60]!r}); "
                    "decode them to plain text first, because scores of pieces cannot be compared with others"
                )
