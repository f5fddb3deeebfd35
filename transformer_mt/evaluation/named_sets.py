"""Test sets that sacreBLEU knows by name, such as wmt14/full. It keeps them in ~/.sacrebleu, or in $SACREBLEU."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from sacrebleu.dataset import DATASETS
from sacrebleu.metrics.base import Signature
from sacrebleu.utils import SACREBLEU_DIR, get_langpairs_for_testset, get_reference_files, get_source_file

from transformer_mt.corpora.text_files import read_lines
from transformer_mt.errors import EvaluationError
from transformer_mt.languages import short_code

_PREFIX = "sacrebleu:"  # no test set of a configuration has a colon in its name


@dataclass(frozen=True)
class NamedSet:
    """A test set of sacreBLEU, and the pair of languages, such as en-de."""

    name: str
    language_pair: str

    @property
    def key(self) -> str:
        """The name in scores.json: it cannot be that of a test set of a configuration."""
        return key_of(self.name)


def key_of(name: str) -> str:
    """Return what scores.json calls the test set of this name."""
    return _PREFIX + name


def file_name(test: str) -> str:
    """Return the name of a test set, as scores.json has it, in the form that file names have."""
    return test.replace(_PREFIX, "sacrebleu.").replace("/", "_")


def signed(signature: Signature, named: NamedSet | None) -> str:
    """Return a signature as text, with the test set and the languages if sacreBLEU has a name for it."""
    if named is not None:
        signature.update("test", named.name)
        signature.update("lang", named.language_pair)
    return str(signature)


def find_named(name: str, languages: tuple[str, str]) -> NamedSet:
    """Find a test set for these languages. Raises EvaluationError if sacreBLEU knows none such."""
    if name not in DATASETS:
        alike = get_close_matches(name, DATASETS, n=3)
        raise EvaluationError(
            f"--test-set {name}: sacreBLEU knows no such test set"
            + (f"; did you mean {' or '.join(alike)}?" if alike else "; `python -m sacrebleu --list` lists all")
        )
    pairs = get_langpairs_for_testset(name)
    wanted = [short_code(language) for language in languages]
    found = [pair for pair in pairs if pair == "-".join(languages)] + [
        pair for pair in pairs if [short_code(language) for language in pair.split("-")] == wanted
    ]
    if not found:
        raise EvaluationError(
            f"--test-set {name}: is not for {'-'.join(languages)}, the languages of this model "
            f"(corpus.source_language, corpus.target_language); it has {', '.join(pairs)}"
        )
    return NamedSet(name, found[0])


def read_named(named: NamedSet) -> tuple[list[str], list[list[str]]]:
    """Read the sources, and one or more sets of references. sacreBLEU downloads them if they are not there.

    Raises EvaluationError, which says what to do, if it cannot.
    """
    try:
        source = get_source_file(named.name, named.language_pair)
        references = get_reference_files(named.name, named.language_pair)
    except (Exception, SystemExit) as error:  # whatever its libraries raise; it exits where a download is damaged
        raise EvaluationError(
            f"--test-set {named.name}: is not in {SACREBLEU_DIR}, where sacreBLEU keeps its test sets, and sacreBLEU "
            f"cannot get it ({error}). Where there is a network, `python -m sacrebleu --download {named.name} "
            f"-l {named.language_pair}` gets it; copy that directory here, or name its place by the environment "
            "variable SACREBLEU"
        ) from None
    return _lines(source), [_lines(file) for file in references]


def _lines(file: str) -> list[str]:
    return [line.rstrip() for line in read_lines(Path(file))]  # as sacreBLEU's own command reads them
