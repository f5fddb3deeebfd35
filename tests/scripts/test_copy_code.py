"""Pages of the documentation show code as it is now."""

import copy_code
import pytest

PAGES = {path.name: path.read_text(encoding="utf-8") for path in copy_code.PAGES.glob("*.md")}


def test_code_in_pages_is_the_code_of_the_package():
    outdated = [name for name, text in PAGES.items() if copy_code.page_with_code(text) != text]
    assert outdated == [], "run python scripts/copy_code.py"


@pytest.mark.parametrize("name", ["one_update.md", "one_search.md", "exercises.md"])
def test_these_pages_show_code_and_a_change_of_it_would_be_seen(name):
    asked = copy_code.ASKED.findall(PAGES[name])
    assert len(asked) > (10 if name != "exercises.md" else 2)
    for _, kind, code in asked:
        block = copy_code.block(kind, code)
        assert block in PAGES[name]
        assert copy_code.page_with_code(PAGES[name].replace(block, block.replace("e", "E"))) == PAGES[name]


def test_a_name_must_mean_one_thing():
    for name in ("no_such_function", "forward"):
        with pytest.raises(ValueError, match=f"0 definitions .* {name}"):
            copy_code.block("code", name)


def test_a_method_is_shown_below_the_name_of_its_class():
    block = copy_code.block("code", "FeedForward.forward")
    assert block.startswith("```python\n# models/transformer.py, class FeedForward\ndef forward(self,")
    assert copy_code.block("code", "Cache").startswith("```python\n# models/transformer.py\n@dataclass\nclass Cache:")
