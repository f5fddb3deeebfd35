"""Puts the tag of a corpus before its sources, and finds tags that a configuration gives to some corpora only."""

from transformer_mt.settings.corpus import CorpusConfig


def tagged(tag: str | None, source: str) -> str:
    """Return a source with its tag before it. A blank source stays blank, so that it still counts as one."""
    return f"{tag} {source}" if tag and source.strip() else source


def tag_warnings(corpus: CorpusConfig) -> list[str]:
    """Return warnings of validation and test sets whose sources begin otherwise than those of every training corpus."""
    trained = list(dict.fromkeys(text.tag for text in corpus.training_corpora))
    named = ", ".join(tag for tag in trained if tag)
    found = []
    for key, split in {"valid": corpus.valid, **{f"test.{name}": test for name, test in corpus.test.items()}}.items():
        tag = corpus.text_of(split).tag
        if tag is None and None not in trained:
            found.append(
                f"corpus.{key} has no tag, and every training corpus has one ({named}). Unless its sources begin with "
                f"a tag themselves, give it one: {{path: …, tag: {trained[0]}}}"
            )
        if tag is not None and tag not in trained:
            has = f"whose tags are {named}" if named else "which have none"
            found.append(f"corpus.{key} has the tag {tag}, which is not one of the training corpora, {has}")
    return found
