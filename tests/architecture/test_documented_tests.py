"""Documentation that names tests names ones that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")


@pytest.mark.parametrize("page", ["docs/design/clouds.md"])
def test_every_named_test_is_there(page):
    named = NAMED.findall((ROOT / page).read_text())
    assert len(named) > 40
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (path := ROOT / "tests" / file).is_file() or f"def {name}(" not in path.read_text()
    ]
    assert missing == []
