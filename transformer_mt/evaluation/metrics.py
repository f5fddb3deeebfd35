"""BLEU, chrF2 and TER by sacreBLEU, COMET, each with a signature, and warnings about texts that give wrong scores."""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import _bootstrap_resample, estimate_ci

from transformer_mt.base.cores import num_cores
from transformer_mt.base.errors import EvaluationError
from transformer_mt.base.languages import short_code
from transformer_mt.base.wording import counted
from transformer_mt.base.worker_pool import Workers
from transformer_mt.corpora.text_traits import PIECE, TOKENISED, TOKENISED_SHARE
from transformer_mt.storage.checksums import sha256
from transformer_mt.storage.records import versions

SacreMetric = BLEU | CHRF | TER
MetricName = str  # a key of ALL_METRICS
METRICS: tuple[MetricName, ...] = ("bleu", "chrf", "ter")
"""The default metrics. Not among them: chrf++ (Popović 2017), which also compares words and pairs of words."""
_TOKENISERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab", **dict.fromkeys(("th", "lo", "km", "my"), "char")}
"""The tokenisers of BLEU, by the short code of the language; all other languages have 13a."""
# Letters of these languages: Thai, Lao, Burmese, Khmer, kana, Chinese characters, Hangul.
_THEIR_LETTERS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_LINES_LOOKED_AT = 1000
_LINES_OF_A_TASK = 16
_RESAMPLES = 1000


@dataclass(frozen=True)
class MetricScore:
    """The score of a text by one metric.

    BLEU, chrF2 and chrF2++ are percentages. TER is the number of edits for 100 reference words; lower is better.
    """

    value: float
    signature: str
    interval: float | None = None
    """Half of the 95 % confidence interval: the 1.2 in 41.0 ± 1.2. None if it was not computed."""


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    target_language: str = "",
    names: Sequence[str] = (),
    *,
    confidence: bool = False,
    metrics: Sequence[MetricName] = METRICS,
) -> dict[str, MetricScore]:
    """Score detokenised lines against one or more complete sets of references, by each of `metrics`.

    `target_language` is a code such as de, zh-CN or jpn_Jpan. It decides the tokeniser of BLEU: see `_TOKENISERS` (Post
    2018). For the languages there, TER splits Chinese characters and Asian punctuation (norm:yes, asian:yes).
    `names` are the names of the hypotheses and of each reference in errors. `confidence` adds confidence intervals:
    sacreBLEU draws 1,000 bootstrap samples of the lines (Koehn 2004), and records this in the signature.
    Raises EvaluationError if there are no lines, if the texts have different numbers of lines, if a line consists of
    subword pieces, or if a tokeniser is not installed.
    """
    names = names or ["hypothesis", *(f"reference {number + 1}" for number in range(len(references)))]
    check_aligned([hypotheses, *references], names)
    check_words([hypotheses, *references], names)
    scores = {}
    for metric in (ALL_METRICS[name](target_language) for name in metrics):
        name, signature, samples_R = resampled(metric, hypotheses, references, _RESAMPLES if confidence else 0)
        interval = float(estimate_ci(samples_R[1:])[1]) if confidence else None
        scores[name] = MetricScore(float(samples_R[0]), signature, interval)
    return scores


def resampled(
    metric: SacreMetric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], num_samples: int = _RESAMPLES
) -> tuple[str, str, NDArray[np.float64]]:
    """Return the name of the metric, its signature, and scores: of the text, then of bootstrap samples of its lines.

    sacreBLEU draws the samples, and draws the same lines of each text, as its paired test (Koehn 2004) does.
    """
    statistics, samples = _line_statistics(metric, hypotheses, references), list[Any]()
    result, signature = metric._aggregate_and_compute(statistics), metric.get_signature()
    if num_samples:
        seed, samples = _bootstrap_resample(statistics, metric, num_samples)
        signature.update("seed", seed)
        signature.update("bs", num_samples)
    return result.name, str(signature), np.array([each.score for each in (result, *samples)])


def _line_statistics(metric: SacreMetric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> list[Any]:
    """Return what sacreBLEU counts in each line. One process per core counts TER, which can take seconds for a line."""

    def counts_of(lines: slice) -> Any:
        return metric._extract_corpus_statistics(hypotheses[lines], [text[lines] for text in references])

    parts = [slice(start, start + _LINES_OF_A_TASK) for start in range(0, len(hypotheses), _LINES_OF_A_TASK)]
    # This process counts the first part, because that also tells `metric` the number of references.
    with closing(Workers(counts_of, num_cores() if isinstance(metric, TER) else 1)) as workers:
        return [counts for _, of_part in workers.map(parts, done_here=1) for counts in of_part]


def corpus_score(
    metric: MetricName, hypotheses: Sequence[str], references: Sequence[str], target_language: str = ""
) -> float:
    """One score, as `score_corpus` computes it. For validation: accepts any output, also subword pieces."""
    check_aligned([hypotheses, references], ["hypothesis", "reference"])
    return float(ALL_METRICS[metric](target_language).corpus_score(hypotheses, [references]).score)


def closest(lists: Sequence[Sequence[str]], references: Sequence[str], target_language: str = "") -> list[str]:
    """Return from each list of translations the one with the highest sentence BLEU against its reference.

    Of equal ones, the first. The BLEU of a sentence without a match of four words uses shorter ones (eff:yes).
    """
    metric = _bleu(target_language, of_sentences=True)
    return [
        max(texts, key=lambda text: metric.sentence_score(text, [reference]).score)
        for texts, reference in zip(lists, references, strict=True)
    ]


def check_aligned(texts: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Raise EvaluationError unless all texts have the same number of lines, and at least one."""
    if len(texts) < 2:
        raise EvaluationError("there are no references; give at least one")
    for name, lines in zip(names, texts, strict=True):
        if len(lines) != len(texts[0]):
            raise EvaluationError(
                f"{names[0]} has {counted(len(texts[0]), 'line')}, {name} has {len(lines):,}; "
                "line n of each must belong to the same sentence"
            )
    if not texts[0]:
        raise EvaluationError(f"{' and '.join(names)} are empty: there is nothing to score; give files with lines")


def language_warning(name: str, lines: Sequence[str], target_language: str) -> str | None:
    """A warning if tokeniser 13a would be used for a language that it cannot split into words; else None."""
    text = "".join(lines[:_LINES_LOOKED_AT])
    num_letters = sum(map(str.isalpha, text))
    if short_code(target_language) in _TOKENISERS or 2 * len(_THEIR_LETTERS.findall(text)) <= num_letters:
        return None
    return (
        f"{name} looks like one of the languages {', '.join(_TOKENISERS)}, which sacreBLEU's tokeniser 13a cannot "
        "split into words: this BLEU cannot be compared with others. Give the language: set corpus.target_language of "
        "a run, or write --language with --hypothesis"
    )


def check_tokeniser(target_language: str) -> None:
    """Raise EvaluationError if BLEU for this language needs a package that is not installed."""
    _bleu(target_language)


def _ter(target_language: str) -> TER:
    asian = short_code(target_language) in _TOKENISERS
    return TER(normalized=asian, asian_support=asian)  # asian_support has no effect without normalized


def _bleu(target_language: str, *, of_sentences: bool = False) -> BLEU:
    language = short_code(target_language)
    tokeniser = _TOKENISERS.get(language, "13a")
    try:
        # `force` turns off sacreBLEU's warning about tokenised text; we print our own. It changes no score.
        return BLEU(tokenize=tokeniser, force=True, effective_order=of_sentences)
    except RuntimeError:
        raise EvaluationError(
            f"BLEU for {target_language} needs a word segmenter that is not installed. Install it: "
            f'pip install "sacrebleu[{language}]"'
        ) from None


ALL_METRICS: dict[MetricName, Callable[[str], SacreMetric]] = {
    "bleu": _bleu,
    "chrf": lambda _: CHRF(),
    "chrf++": lambda _: CHRF(word_order=2),
    "ter": _ter,
}
"""For each name in `evaluate --metrics`, the function that makes the metric for a language. Add new metrics here."""


def check_words(texts: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    """Raise EvaluationError if a line consists of subword pieces."""
    for name, lines in zip(names, texts, strict=True):
        for number, line in enumerate(lines, start=1):
            if piece := PIECE.search(line):
                raise EvaluationError(
                    f"{name}, line {number}: contains subword pieces ({piece[0]!r} in {line[:60]!r}). Decode them to "
                    "plain text first: scores of pieces cannot be compared with those of others"
                )


_CASED_SHARE, _LOWER_SHARE = 0.5, 0.02  # share of lines with a capital letter: at least in cased, at most in other text


def tokenised_warning(name: str, lines: Sequence[str]) -> str | None:
    """A warning if many lines look tokenised (BLEU tokenises text itself); else None."""
    found = [number for number, line in enumerate(lines, start=1) if TOKENISED.search(line)]
    if len(found) <= TOKENISED_SHARE * len(lines):
        return None
    look = "looks" if len(found) == 1 else "look"
    return (
        f"{len(found):,} of {counted(len(lines), 'line')} of the {name} {look} tokenised (a space before a full stop "
        f"or a comma, &apos; or @-@), such as line {found[0]}. Score detokenised text: only its scores can be compared "
        "with those of others."
    )


def case_warning(names: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    """A warning if only one of the two texts has capital letters (BLEU distinguishes them); else None."""
    size, cased = len(references), [sum(line != line.lower() for line in lines) for lines in (hypotheses, references)]
    for at, other in ((0, 1), (1, 0)):
        if cased[at] <= _LOWER_SHARE * size and cased[other] >= _CASED_SHARE * size:
            return (
                f"{names[at]} looks lower-cased ({cased[at]:,} of {counted(size, 'line')} with a capital letter), and "
                f"{names[other]} does not ({cased[other]:,}): each capital letter counts as an error. Score text with "
                "capital letters"
            )
    return None


def text_warnings(names: Sequence[str], texts: Sequence[Sequence[str]], target_language: str) -> list[str | None]:
    """The warnings about translations and their references, in this order, that give wrong scores."""
    tokenised = [tokenised_warning(name, lines) for name, lines in zip(names, texts, strict=True)]
    return [*tokenised, case_warning(names, *texts[:2]), language_warning(names[1], texts[1], target_language)]


_INSTALL = (
    "`pip install --no-deps unbabel-comet`, then `pip install pytorch-lightning 'torchmetrics<0.11' entmax "
    "'jsonargparse==3.13.1' 'transformers<5' 'huggingface-hub<1.0' 'setuptools<81' scipy requests` (without --no-deps, "
    "pip would put an older NumPy in place of yours)"
)


class Comet:
    """COMET (Rei et al. 2020): a trained metric, whose model is in a directory of this machine. Nothing is downloaded.

    It needs the package unbabel-comet, which you install separately.
    """

    def __init__(self, path: Path, device: str = "auto") -> None:
        """`path` is a checkpoint, or the directory of a model, with checkpoints/model.ckpt and hparams.yaml.

        COMET runs on a GPU if there is one, unless `device` is cpu. The model is loaded when it is first used. Raises
        EvaluationError if a file of the model is missing, or if the package is not installed.
        """
        self.path, self.device = path, device
        self.checkpoint = path / "checkpoints" / "model.ckpt" if path.is_dir() else path
        self.directory = self.checkpoint.absolute().parent.parent
        for file in (self.checkpoint, self.directory / "hparams.yaml"):
            if not file.is_file():
                raise EvaluationError(
                    f"comet={path}: {file} is missing. Give the directory of a COMET model on this machine, with "
                    "checkpoints/model.ckpt and hparams.yaml, or the checkpoint itself; `evaluate` downloads no model"
                )
        if find_spec("comet") is None:
            raise EvaluationError(f"comet={path} needs the package unbabel-comet, which is not installed: {_INSTALL}")

    def score(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> MetricScore:
        """Return the mean of COMET's scores of the lines, times 100. Raises EvaluationError if the model fails."""
        rows = zip(sources, hypotheses, references, strict=True)
        samples = [{"src": source, "mt": hypothesis, "ref": reference} for source, hypothesis, reference in rows]
        try:
            from torch import cuda  # imported here, because it takes long

            gpus = [int(self.device.partition(":")[2] or 0)] if self.device != "cpu" and cuda.is_available() else []
            model = self._model
            print(f"COMET: scoring {counted(len(samples), 'line')}", file=sys.stderr, flush=True)
            found = model.predict(
                samples, batch_size=16, gpus=len(gpus), devices=gpus or None, progress_bar=False, num_workers=0
            )
            value = 100 * float(found["system_score"])
        except Exception as error:  # other packages may raise any error
            raise EvaluationError(
                f"comet={self.path}: COMET failed ({type(error).__name__}: {error}). The encoder's tokenizer and "
                "configuration (hparams.yaml gives its name) must be on this machine, too. If a package is missing: "
                f"{_INSTALL}"
            ) from error
        return MetricScore(value, self.signature)

    @cached_property
    def signature(self) -> str:
        """The model and settings that computed the scores, in the form of sacreBLEU's signatures."""
        name, package = self.directory.name.replace("|", "_"), versions(["unbabel-comet"])["unbabel-comet"]
        return f"nrefs:1|model:{name}|sha256:{sha256(self.checkpoint)[:16]}|dtype:fp32|scale:100|version:{package}"

    @cached_property
    def _model(self) -> Any:
        print(
            f"note: {self.checkpoint}: a COMET checkpoint is a Python pickle: loading it runs any code in it. Use only "
            "checkpoints from people you trust",
            file=sys.stderr,
        )
        from comet import load_from_checkpoint

        return load_from_checkpoint(str(self.checkpoint), local_files_only=True)
