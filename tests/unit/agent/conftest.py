from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.agent.harness import Rig, rigs


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    with rigs(tmp_path) as make:
        yield make


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()
