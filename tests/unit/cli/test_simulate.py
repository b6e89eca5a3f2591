"""``cloudgavel simulate`` from the command line."""

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloudgavel.cli.commands.simulate import _Progress, simulate
from cloudgavel.errors import UsageError
from cloudgavel.simulator.trace_formats import load_throughputs

KIND = "ResNet-18 (batch size 64)"
PROMISED = {
    "policy",
    "jobs_completed",
    "avg_jct_s",
    "p99_jct_s",
    "makespan_s",
    "cost_usd",
    "utilization",
    "deadline_misses",
    "rounds",
    "moves",
    "solve_s",
    "wall_s",
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    jobs = [
        f"{KIND}\tpython3 x.py\tdir\t--steps\t1\t{3600 * n}\t1\t1\t-1\t{100 * n}"
        for n in range(1, 5)
    ]
    (tmp_path / "a.trace").write_text("\n".join(jobs) + "\n")
    row = f"('{KIND}', 1)"
    table = {"v100": {row: {"null": 4.0}}, "k80": {row: {"null": 1.0}}}
    (tmp_path / "t.json").write_text(json.dumps(table))
    return [
        "--workload",
        str(tmp_path / "a.trace"),
        "--throughputs",
        str(tmp_path / "t.json"),
        "--cluster",
        "v100=1,k80=2",
    ]


def called(arguments: list[str]) -> Result:
    return CliRunner().invoke(simulate, arguments, catch_exceptions=False)


def test_json_holds_what_was_promised(files: list[str]) -> None:
    result = called([*files, "--policies", "max_min_fairness,fifo", "--json"])
    document = json.loads(result.stdout)
    assert document["schema"] == "cloudgavel/simulation"
    assert [each["policy"] for each in document["results"]] == ["max_min_fairness", "fifo"]
    for each in document["results"]:
        assert set(each) >= PROMISED
        assert each["jobs_completed"] == 4


def test_the_table_and_the_csv_agree_with_the_json(files: list[str]) -> None:
    text = called([*files, "--policies", "fifo"]).stdout
    assert "fifo" in text and "4/4" in text
    rows = list(
        csv.DictReader(
            io.StringIO(called([*files, "--policies", "fifo", "--output", "csv"]).stdout)
        )
    )
    document = json.loads(called([*files, "--policies", "fifo", "--json"]).stdout)
    assert float(rows[0]["avg_jct_s"]) == document["results"][0]["avg_jct_s"]


def test_the_report_is_written(files: list[str], tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    called([*files, "--policies", "fifo,isolated", "--report", str(page)])
    assert page.read_text().startswith("<!doctype html>")


def test_generated_workloads_need_no_file(files: list[str]) -> None:
    without = [part for part in files if "a.trace" not in part and part != "--workload"]
    more = ["--jobs", "3", "--seeds", "2", "--policies", "fifo", "--json"]
    document = json.loads(called([*without, *more]).stdout)
    assert [each["seed"] for each in document["results"]] == [0, 1]


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--policies", "fiffo"], "no policy `fiffo`"),
        (["--policies", ","], "names none"),
        (["--measured", "9-3"], "expected first-last"),
        (["--measured", "0-4"], "the last one is 3"),
        (["--columns", "nonsense"], "expected field=column"),
        (["--prices", "h100=3"], "which --cluster does not"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    files: list[str], extra: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        called([*files, *extra])


def test_a_type_without_throughputs_is_refused(files: list[str]) -> None:
    with pytest.raises(UsageError, match="no throughput is known for `h100`"):
        called([*files[:-1], "h100=4"])


def test_spot_is_still_a_subcommand() -> None:
    assert "TRACE" in called(["spot", "--help"]).stdout


JOBS_YAML = """
version: 1
name: two
budget: 60
rehearsal: {clouds: {aws: {regions: [us-east-1]}}}
jobs:
  - {name: a, command: "true", steps: 1800, accelerators: {V100: 1}, throughput: {V100: 1.0},
     deadline: 6h}
  - {name: b, command: "true", steps: 900, accelerators: {V100: 1}, throughput: {V100: 1.0},
     arrives: 1h}
"""


@pytest.fixture
def jobs_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "jobs.yaml").write_text(JOBS_YAML)
    monkeypatch.chdir(tmp_path)
    return "jobs.yaml"


def test_a_jobs_file_is_simulated_on_rented_machines(jobs_yaml: str) -> None:
    policies = ["--policies", "min_cost,on_demand_only"]
    document = json.loads(called([jobs_yaml, *policies, "--seeds", "2", "--json"]).stdout)
    assert document["schema"] == "cloudgavel/simulation"
    assert document["budget_usd"] == 60 and document["market"].endswith("offers of aws")
    assert [each["seed"] for each in document["results"]] == [0, 0, 1, 1]
    for each in document["results"]:
        assert set(each) >= PROMISED | {"interruptions", "lost_steps", "p50_jct_s", "p90_jct_s"}
        assert each["jobs_completed"] == 2 and each["deadline_misses"] == 0
    assert {each["metric"] for each in document["differences"]} >= {"cost_usd", "makespan_s"}


def test_the_budget_of_the_flag_goes_before_the_files(jobs_yaml: str) -> None:
    arguments = [jobs_yaml, "--policies", "on_demand_only", "--budget", "$90", "--output", "csv"]
    document = json.loads(called([*arguments, "--json"]).stdout)
    assert document["budget_usd"] == 90
    rows = list(csv.DictReader(io.StringIO(called(arguments).stdout)))
    assert float(rows[0]["cost_usd"]) == document["results"][0]["cost_usd"]


def test_a_jobs_file_runs_on_a_fixed_cluster_too(jobs_yaml: str) -> None:
    document = json.loads(
        called([jobs_yaml, "--cluster", "v100=1", "--policies", "fifo", "--json"]).stdout
    )
    (result,) = document["results"]
    assert result["jobs_completed"] == 2 and result["makespan_s"] == pytest.approx(4500)
    assert document["market"] is None and document["cluster"][0]["count"] == 1


def test_generated_jobs_are_rented_for(tmp_path: Path) -> None:
    generated = ["--rented", "--generate", "1", "--deadlines", "--round-s", "1800", "--seed", "3"]
    document = json.loads(called([*generated, "--policies", "on_demand_only", "--json"]).stdout)
    assert document["workload"] == "1 generated job, all at once"
    assert document["results"][0]["jobs_completed"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing says where the jobs run"),
        (["jobs.yaml", "--policies", "fifo"], "plans for a fixed cluster, not for a rented fleet"),
        (["jobs.yaml", "--cluster", "v100=1", "--policies", "min_cost"], "not for a fixed cluster"),
        (["jobs.yaml", "--cluster", "v100=1", "--budget", "5"], "the cluster is fixed here"),
        (["jobs.yaml", "--cluster", "k80=1"], "accepts nothing that the cluster has"),
        (["jobs.yaml", "--measured", "0-1"], "machines are rented here"),
        (["jobs.yaml", "--workload", "a.csv"], "both give jobs"),
        (["jobs.yaml", "--budget", "none"], "not an amount of money"),
        (["nothing.yaml"], "there is no file"),
    ],
)
def test_what_does_not_go_together_is_refused(
    jobs_yaml: str, arguments: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        called(arguments)


def test_help_names_the_subcommand() -> None:
    assert "simulate spot" in called(["--help"]).stdout


@pytest.mark.parametrize(
    ("calls", "last"),
    [
        ([(10.0, 1), (20.0, 2)], "simulated 2/4, about 20 s left"),
        # Two were kept: told at once, and no measure of the others.
        ([(0.1, 2)], "simulated 2/4"),
        ([(0.1, 2), (10.0, 3)], "simulated 3/4, about 10 s left"),
        ([(40.0, 4)], "simulated 4/4"),
    ],
)
def test_progress_tells_the_time_left(
    calls: list[tuple[float, int]], last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    progress = _Progress(True, lambda: now[0])
    for at_s, finished in calls:
        now[0] = at_s
        progress(finished, 4)
    assert capsys.readouterr().err.split("\r")[-1].strip() == last


def test_missing_throughputs_are_shown_by_a_file_that_would_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        simulate.main(["--generate", "2", "--cluster", "v100=1"], standalone_mode=False)
    table = tmp_path / "table.json"
    table.write_text(refused.value.hints[0].rpartition("like ")[2])
    assert load_throughputs(table).rate(("ResNet-50", 1), "v100") == 9.5
