"""The worked example of docs/concepts/policies.md is what the policies answer."""

from pathlib import Path

import numpy as np
import pytest

from cloudgavel.policies.both_worlds import BothWorlds
from cloudgavel.policies.fixed.share_policy import SharePolicy
from cloudgavel.policies.problem import JobRow
from cloudgavel.policies.registry import policy_named, policy_names
from cloudgavel.policies.sharing import PairSharing
from tests.unit.policies_fixed.building import cluster_problem, pool

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "policies.md"
EXAMPLE = cluster_problem(
    [[10.0, 1.0], [4.0, 2.0], [3.0, 2.0]],
    [1, 1],
    jobs=[
        JobRow(name="lm", steps_left=36_000.0, entity="a"),
        JobRow(name="resnet", steps_left=18_000.0, entity="a"),
        JobRow(name="gan", steps_left=7_200.0, entity="b", deadline_s=4_000.0),
    ],
    pools=[pool("V100", price=2.48), pool("K80", price=0.45)],
    sharing=PairSharing(kind_of_job=np.arange(3), retained_share=np.full((3, 3, 2), 0.6)),
)


def rows() -> list[list[str]]:
    text = PAGE.read_text().split("## A worked example")[1].split("## ")[0]
    cells = [
        [each.strip() for each in line.strip("| \n").split("|")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]
    return [each for each in cells if len(each) == 5]


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: cells[0])
def test_the_row_is_recomputed(cells):
    found = policy_named(cells[0].strip("`")).allocate(EXAMPLE)
    assert found.objective_value == pytest.approx(float(cells[4]), rel=1e-3)
    printed = np.array([[float(part) for part in cell.split(",")] for cell in cells[1:4]])
    assert found.shares == pytest.approx(printed, abs=2e-3)


def test_every_policy_has_a_formula_and_originals_have_a_row():
    text = PAGE.read_text()
    shown = {cells[0].strip("`") for cells in rows()}
    for name in policy_names():
        if not isinstance(policy_named(name), SharePolicy | BothWorlds):
            continue
        if name.endswith(("_agnostic", "_space_sharing")):
            continue
        assert f"| `{name}` | " in text
        assert name in shown


def test_the_arithmetic_in_words():
    level = 10 * (3 / 7) / 5.5
    assert level == pytest.approx(0.779, abs=1e-3)
    found = policy_named("max_min_fairness").allocate(EXAMPLE)
    assert found.objective_value == pytest.approx(level, rel=1e-3)
    assert policy_named("makespan").allocate(EXAMPLE).objective_value == pytest.approx(6600)
