"""Texts that should not be scored against each other are named, and others are not."""

from transformer_mt.evaluation.metrics import case_warning, tokenised_warning

REFERENCES = [f"Der Hund Nummer {n} schläft in dem alten Haus." for n in range(40)]


def lower(lines: list[str]) -> list[str]:
    return [line.lower() for line in lines]


def test_lower_cased_text_against_cased_text_is_named_on_either_side():
    assert case_warning(["ours", "theirs"], REFERENCES, REFERENCES) is None
    assert case_warning(["ours", "theirs"], lower(REFERENCES), lower(REFERENCES)) is None
    assert str(case_warning(["ours", "theirs"], lower(REFERENCES), REFERENCES)).startswith("ours looks lower-cased (0")
    assert str(case_warning(["ours", "theirs"], REFERENCES, lower(REFERENCES))).startswith("theirs looks lower-cased")
    no_case = ["这是一只狗。"] * 40
    assert case_warning(["ours", "theirs"], no_case, no_case) is None


def test_tokenised_lines_are_named():
    tokenised = [line.replace(".", " .") for line in REFERENCES]
    assert "such as line 1." in str(tokenised_warning("hypothesis", tokenised))
    assert "such as line 2." in str(tokenised_warning("hypothesis", [*REFERENCES[:1], *tokenised[:1]]))
