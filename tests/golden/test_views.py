"""What commands print, word for word, at 100 and at 80 columns.

``CLOUDGAVEL_NEW_GOLDEN=1 pytest tests/golden`` writes the files anew: then read the difference.
"""

import json
import os
from pathlib import Path

import pytest

from cloudgavel.documents.encode import as_json
from cloudgavel.views.explain import explain_text
from cloudgavel.views.frontier import frontier_text
from cloudgavel.views.plan import plan_text
from cloudgavel.views.run import run_text
from cloudgavel.views.status import status_text
from tests.golden.documents import (
    a_frontier,
    a_plan,
    a_run,
    a_status,
    an_explanation,
    an_explanation_of_the_past,
)

HERE = Path(__file__).parent

TEXTS = {
    "plan": lambda width: plan_text(
        a_plan(feasible=True), width=width, next_steps=True, file="jobs.yaml"
    ),
    "plan-infeasible": lambda width: plan_text(
        a_plan(feasible=False), width=width, next_steps=True, file="jobs.yaml"
    ),
    "frontier": lambda width: frontier_text(
        a_frontier(), width=width, next_steps=True, file="jobs.yaml"
    ),
    "run": lambda width: run_text(a_run(), width=width),
    "status": lambda width: status_text(a_status(), width=width),
    "explain": lambda width: explain_text(an_explanation(), width=width),
    "explain-finished": lambda width: explain_text(an_explanation_of_the_past(), width=width),
}


def matches(name: str, text: str) -> None:
    path = HERE / name
    if os.environ.get("CLOUDGAVEL_NEW_GOLDEN") == "1":
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [100, 80])
@pytest.mark.parametrize("view", TEXTS)
def test_text(view, width):
    matches(f"{view}-{width}.txt", TEXTS[view](width))


@pytest.mark.parametrize("width", [100, 80, 60])
@pytest.mark.parametrize("view", ["plan", "frontier", "run", "status"])
def test_tables_stay_within_the_width(view, width):
    lines = TEXTS[view](width).splitlines()
    table = [line for line in lines if line.startswith("  ")]
    assert table and max(len(line) for line in table) <= width


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("plan", a_plan(feasible=False)),
        ("frontier", a_frontier()),
        ("run", a_run()),
        ("status", a_status()),
        ("explain", an_explanation()),
    ],
)
def test_json(name, document):
    matches(f"{name}.json", json.dumps(as_json(document), indent=2, ensure_ascii=False))
