"""What every rented machine is labelled with, so that it is found again without the database.

Keys and values keep to the narrowest rule of the clouds (GCP labels): lower-case letters, digits,
``-`` and ``_``, at most 63 characters.
"""

import hashlib
import re
from collections.abc import Mapping

RUN_TAG = "cloudgavel-run"
TOKEN_TAG = "cloudgavel-token"
OFFER_TAG = "cloudgavel-offer"
GANG_TAG = "cloudgavel-gang"
"""Only on machines of a gang over several: one value for all of the gang."""

_LONGEST = 63


def tags_of(
    *, run_id: str, token: str, offer_id: str, gang: str | None = None
) -> Mapping[str, str]:
    """Labels of one machine; equal inputs give equal labels."""
    return {
        RUN_TAG: label_value(run_id),
        TOKEN_TAG: label_value(token),
        OFFER_TAG: label_value(offer_id),
        **({} if gang is None else {GANG_TAG: label_value(gang)}),
    }


def label_value(text: str) -> str:
    """``text`` as a label's value; one that had to be changed ends in a hash of the original.

    Two different texts therefore never share a label, short of a hash collision.
    """
    plain = re.sub(r"[^a-z0-9_-]", "-", text.lower())
    if plain == text and len(text) <= _LONGEST:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
    return f"{plain[: _LONGEST - 11]}-{digest}"
