"""Text to train tokenizers on, and text that is hard for them."""

import random

from transformer_mt.settings.text_settings import TokenizerConfig


def made_up(endings: str, seed: int) -> list[str]:
    """Sentences of 200 words that a language might have; such words end in one of these letters."""
    generator = random.Random(seed)
    words = [
        "".join(generator.choice("bdfgklmnprstvz") + generator.choice("aeiou") for _ in range(length))
        + generator.choice(endings)
        for length in (1, 2, 3, 4)
        for _ in range(50)
    ]
    return [" ".join(generator.choices(words, k=8)).capitalize() + "." for _ in range(300)]


def of_syllables(seed: int) -> list[str]:
    """Sentences of words of 1 to 4 of 30 syllables: every version of sentencepiece learns pieces of all lengths."""
    generator = random.Random(seed)
    syllables = [
        generator.choice("bdfgklmnprstvz") + generator.choice("aeiou") + generator.choice(["", "n", "r", "st"])
        for _ in range(30)
    ]
    return [
        " ".join("".join(generator.choices(syllables, k=generator.randint(1, 4))) for _ in range(8)) for _ in range(300)
    ]


ENGLISH = ["The red dog runs over the field.", *made_up("sydht", seed=1)]
GERMAN = ["Der rote Hund läuft über das Feld.", *made_up("nßüöä", seed=2)]
ODD = [
    "",
    " ",
    "\u2581",
    "a\u2581b",
    "<s> </s> <pad> <unk> <0x41>",
    "</s>",
    "tabs\tand\u00a0such\u3000spaces\u2028 here ",
    "nul \x00 and \x07",
    "… ½ ² ™ ﬁ „Zitat“ \uff0c\u3002 \uff21\uff22\uff23",
    "日本語 العربية हिन्दी \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e\u0301 A\u030a \u1112\u1161\u11ab",
    "lone \ud800 surrogate",
    "\u2585 \ufffd \ufeff \U0010ffff",
    "x" * 70_000,
]


def settings(**values: object) -> TokenizerConfig:
    return TokenizerConfig.model_validate({"vocab_size": 340, **values})
