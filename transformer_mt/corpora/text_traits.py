"""Recognises what lines of text are like by their words and signs: tokenised, in subword pieces, in which language."""

import re

from transformer_mt.base.languages import short_code

# SentencePiece marks the beginning of a word; subword-nmt ends a piece inside a word with @@. @@ alone is text.
PIECE = re.compile("\u2581|\\S@@(?=\\s|$)")
# Only a tokeniser writes a space before . or , (French has spaces before ? ! : ;). Moses writes &apos; &quot; and @-@.
TOKENISED = re.compile(r"\s[.,](?=\s|$)|&apos;|&quot;|\s@-@\s")
TOKENISED_SHARE = 0.1
"""A text with a larger share of such lines is tokenised."""
ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z]{2,8});")
"""An HTML entity, such as &amp; or &#39;"""

# The most frequent words of languages that are written alike. Of Chinese and Japanese, characters.
_FREQUENT = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the to of and a you is that it this",
        "de": "die der und ich ist nicht das zu sie ein",
        "nl": "de het een van ik niet en dat is te",
        "af": "die nie en het van is in ek om wat",
        "da": "er det at jeg og ikke du en i af",
        "nb": "er det jeg ikke og å du som en av",
        "sv": "att det är jag och inte du som en på",
        "is": "að er og það ég ekki sem í þú var",
        "fr": "de la le les et est pas je que un",
        "es": "de la que el en no los y se un",
        "ca": "de la que i el no és en un per",
        "pt": "de que o a não e do para um os",
        "it": "di che non è la il un per sono e",
        "ro": "nu de a și în că la să este pe",
        "fi": "on ja ei se että hän en oli mutta minä",
        "et": "on ja ei et see ta ma oli kas mis",
        "hu": "a az nem és hogy egy van is meg ez",
        "cs": "se je na že to jsem v a si jak",
        "sk": "sa je na že to som v a si ako",
        "pl": "nie to się w na z że jest do i",
        "sl": "je in se v na da ne so za pa",
        "hr": "je i u da se na su ne za što",
        "lt": "ir yra į kad su tai aš ne iš jis",
        "lv": "ir un ka es to ar no uz nav tas",
        "tr": "bir ve bu da ne için o çok mi ben",
        "id": "yang dan di tidak ini itu saya dengan untuk dia",
        "vi": "là không của và tôi có cho một người anh",
        "eo": "la de kaj estas ne mi en al li ke",
        "ru": "не и в что на я он это как но",
        "uk": "не що на я в це з він та як",
        "bg": "да на не и че за от ще ли съм",
        "ar": "في من على أن هذا لا إلى ما هل لم",
        "fa": "به از که در را این و است من با",
        "zh": "的 我 是 不 了 这 你 们 他 吗",
        "ja": "の に は を た が で て と し",
    }.items()
}
_FREQUENT["no"] = _FREQUENT["nb"]
_FEWEST = 4  # words that only one of two languages has; with fewer, no text can be assigned to one of them


def telling_words(language: str, other: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return frequent words of each of two languages that are not among those of the other, in small letters.

    In Chinese and Japanese they are characters. Both sets are empty if the words of a language are not known, or if too
    few of them differ.
    """
    words, others = (_FREQUENT.get(short_code(code), frozenset[str]()) for code in (language, other))
    own, of_other = words - others, others - words
    return (own, of_other) if min(len(own), len(of_other)) >= _FEWEST else (frozenset(), frozenset())
