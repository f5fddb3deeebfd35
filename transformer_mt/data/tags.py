"""Puts the tag of a corpus before its sources."""


def tagged(tag: str | None, source: str) -> str:
    """Return a source with its tag before it. A blank source stays blank, so that it still counts as one."""
    return f"{tag} {source}" if tag and source.strip() else source
