"""What a server accepts at most: sizes, waiting sentences, seconds, and whose requests."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request

from transformer_mt.base.errors import UserError
from transformer_mt.base.wording import counted

MOST_ALTERNATIVES = 10
"""More translations of a text than these, besides the best, are not given."""
WIDEST_BEAM = 32
MOST_FIELDS = 32
"""Fields that a form may have."""
_CHARACTERS_OF_A_SENTENCE = 200


@dataclass(frozen=True)
class Limits:
    queue: int
    """Sentences that wait or are being translated."""
    characters: int
    """Characters of a request."""
    texts: int
    """Texts of a request."""
    seconds: float
    """Seconds until a request has arrived, and then until it is answered."""
    keys: frozenset[bytes] = frozenset()
    """The SHA-256 digests of the API keys. Without any, no key is needed, and every key is accepted."""

    @property
    def body(self) -> int:
        """The most bytes of a request: a character takes up to 12 in JSON and in forms."""
        return 12 * self.characters + 2**16

    def check_key(self, request: Request, field: object) -> None:
        """Raises HTTPException without a known key, in the field api_key or in the header Authorization: Bearer.

        How long it takes does not depend on how much of a key is right.
        """
        if not self.keys:
            return
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = field if field and isinstance(field, str) else bearer.strip() if scheme.lower() == "bearer" else ""
        if not given:
            raise HTTPException(400, "Please contact the server operator to get an API key")
        digest = hashlib.sha256(given.encode()).digest()
        if not any([hmac.compare_digest(digest, key) for key in self.keys]):  # a list, so that all are compared
            raise HTTPException(403, "Invalid API key")

    def check_size(self, texts: Sequence[str], others: Sequence[str] = ()) -> None:
        """Raises HTTPException for too many texts, or too many characters of these and other strings."""
        characters = sum(map(len, [*texts, *others]))
        for size, limit in ((len(texts), self.texts), (characters, self.characters)):
            if size > limit:
                raise HTTPException(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")


def json_object(body: bytes) -> dict[str, Any]:
    """Parse an object of JSON. Raises HTTPException. No text has half a surrogate pair, which UTF-8 cannot write."""
    try:
        fields = from_json(body, allow_inf_nan=False)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise HTTPException(400, "Invalid JSON format")
    return fields


def num_sentences(texts: Sequence[str]) -> int:
    """Estimate how many sentences texts have: one for each line, and for each 200 characters of a longer line."""
    lines = (line for text in texts for line in text.splitlines() or [""])
    return sum(max(1, -(-len(line) // _CHARACTERS_OF_A_SENTENCE)) for line in lines)


def read_keys(path: Path) -> frozenset[bytes]:
    """Read a file of API keys, one a line; a line that begins with # is a comment. Returns their digests."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError:
        raise UserError(f"--api-keys {path}: is not a text in UTF-8; write one key on each line") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UserError(f"--api-keys {path}: holds no key; write one on each line, or leave --api-keys out")
    if short := [number for number, line in enumerate(lines, 1) if line in keys and len(line) < 16]:
        lacking = counted(len(short), "key")
        raise UserError(
            f"--api-keys {path}: line {short[0]} has a key of fewer than 16 characters ({lacking} in all), which could "
            "be guessed: `openssl rand -hex 16` makes a better one"
        )
    return frozenset(hashlib.sha256(key.encode()).digest() for key in keys)
