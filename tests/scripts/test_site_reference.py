"""The reference pages of the site have all settings and all messages."""

import re
from html import unescape

import list_messages
import site_reference

from transformer_mt.settings import suggestions


def entries(page: str) -> dict[str, str]:
    """The text of each entry by the id by which it can be linked, without tags."""
    found = re.findall(r'<dt id="(.*?)">(.*?)</dd>', page, flags=re.DOTALL)
    assert len({name for name, _ in found}) == len(found), "two entries have the same id"
    return {name: unescape(re.sub(r"<.*?>", "", text)) for name, text in found}


def test_the_page_has_every_setting_with_its_meaning():
    found = entries(site_reference.settings())
    for section, title, keys in suggestions.parts():
        for key, schema in keys.items():
            kind = title.partition(":")[0].rpartition("=")[2]
            name = f"{kind}.{key}" if section == "model" else f"{section}.{key}".removeprefix(".")
            assert schema.get("description", "").replace("`", "") in found.pop(name)
    assert found == {}


def test_the_page_has_every_message_with_all_its_words():
    found = entries(site_reference.messages())
    texts = {code: text for codes in list_messages.listed().values() for code, text in codes.items()}
    assert found.keys() == texts.keys() and len(texts) > 300
    for code, text in texts.items():
        for words in re.split(r"\{[^{}]*\}", text):
            assert words.replace("`", "") in found[code]


def test_a_page_asks_for_what_is_made_by_a_comment_and_other_pages_stay():
    page = "# All\n\n<!-- made when the site is built: settings -->\n"
    assert site_reference.on_page_markdown(page) == f"# All\n\n{site_reference.settings()}\n"
    assert site_reference.on_page_markdown("# Other <!-- comment -->\n") == "# Other <!-- comment -->\n"
    for name in site_reference.MADE:
        text = (list_messages.ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert site_reference.on_page_markdown(text) != text
