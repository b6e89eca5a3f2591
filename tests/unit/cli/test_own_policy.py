"""A policy of one's own beside the jobs.yaml, and policies by name, through the real commands."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloudgavel.cli.commands.plan import plan
from cloudgavel.errors import UsageError

EXAMPLE = Path(__file__).parents[3] / "examples" / "custom_policy.py"
JOBS = """
version: 1
name: two
policy: {policy}
round: 1h
rehearsal: {{clouds: {{aws: {{regions: [us-east-1]}}}}}}
jobs:
  - name: small
    command: python small.py
    steps: 7_200
    accelerators: {{T4: 1, V100: 1}}
    throughput: {{T4: 1.0, V100: 2.0}}
    deadline: 6h
  - name: large
    command: python large.py
    steps: 14_400
    accelerators: {{T4: 1, V100: 1}}
    throughput: {{T4: 1.0, V100: 3.0}}
    deadline: 8h
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "custom_policy", raising=False)
    return tmp_path


def planned(folder: Path, policy: str, *flags: str) -> Result:
    file = folder / "jobs.yaml"
    file.write_text(JOBS.format(policy=policy))
    return CliRunner().invoke(plan, [str(file), "--budget", "50", "--json", *flags])


def test_a_file_beside_the_jobs_is_the_policy(folder: Path) -> None:
    shutil.copy(EXAMPLE, folder)
    done = planned(folder, "custom_policy:CheapAndFair")
    assert done.exception is None, done.output
    found = json.loads(done.stdout)
    assert found["policy"] == "cheap_and_fair" and found["feasible"]
    assert all(job["deadline_met"] for job in found["jobs"])
    assert found["cost"]["expected_usd"] < 50
    assert not any("failed" in note or "usable" in note for note in found["notes"])


def test_without_the_file_it_says_which_module_is_missing(folder: Path) -> None:
    done = planned(folder, "custom_policy:CheapAndFair")
    assert isinstance(done.exception, UsageError)
    assert "`custom_policy` cannot be loaded" in done.exception.message


def test_a_policy_of_a_fixed_cluster_is_refused_with_those_that_rent(folder: Path) -> None:
    done = planned(folder, "fifo")
    assert isinstance(done.exception, UsageError)
    assert "divides a fixed cluster" in done.exception.message
    assert "makespan" in dict(done.exception.facts)["for a rented fleet"]


def test_the_frontier_in_json(folder: Path) -> None:
    done = planned(folder, "min_cost", "--frontier")
    assert done.exception is None, done.output
    found = json.loads(done.stdout)
    assert found["schema"] == "cloudgavel/frontier" and found["feasible"]
    ends = [point["makespan_s"] for point in found["points"]]
    assert ends == sorted(ends, reverse=True) and len(set(ends)) == len(ends) >= 1
