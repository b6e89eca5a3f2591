"""Names of runs and jobs: they become tags, file names and tokens, so they are DNS-like."""

import re
from collections.abc import Callable
from typing import Final

from cloudgavel.jobs.quantities import QuantityError, quoted

LONGEST_RUN_NAME: Final = 40
"""Short enough that tags and idempotency tokens built from it fit the clouds' limits."""
LONGEST_JOB_NAME: Final = 63
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")


def _checked(text: str, longest: int) -> str:
    if len(text) > longest:
        raise QuantityError(f"a name has at most {longest} characters, got {len(text)}")
    if not _NAME.fullmatch(text):
        better = re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
        example = f" like {better}" if better else ""
        raise QuantityError(
            f"expected a name of lower-case letters, digits, `-` and `.`{example}, "
            f"got {quoted(text)}"
        )
    if ".." in text:
        raise QuantityError(f"a name has no two dots in a row, got {quoted(text)}")
    return text


def _reader(longest: int) -> Callable[[str], str]:
    return lambda text: _checked(text, longest)


run_name = _reader(LONGEST_RUN_NAME)
"""Scalar reader of a run's name (``QuantityError``)."""
job_name = _reader(LONGEST_JOB_NAME)
"""Scalar reader of a job's name (``QuantityError``)."""
