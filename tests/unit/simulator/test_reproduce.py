"""The reproduction report: every section on made-up workloads, kept results, honest verdicts."""

import dataclasses

import pytest

from benchmarks.reproduce import __main__ as reproduce
from benchmarks.reproduce import hierarchy, original, speed
from benchmarks.reproduce.bench import Bench, made_up_table
from benchmarks.reproduce.capacity import mean_duration_s, sustained_jobs_per_hour
from benchmarks.reproduce.reference import REFERENCES, Reference
from benchmarks.reproduce.report import Section, Table, html, markdown
from cloudgavel.policies.registry import policy_names
from cloudgavel.simulator.throughputs import ThroughputTable

SIMULATED = "load,makespan,finish_time,cost,sharing,hierarchy,estimates,placement,time"


def test_a_quick_report_has_every_section_and_is_resumed(tmp_path, capsys):
    out, kept = tmp_path / "report.md", tmp_path / "kept"
    asked = ["--quick", "--out", str(out), "--results", str(kept), "--workers", "1"]
    assert reproduce.main([*asked, "--sections", SIMULATED]) == 0
    text = out.read_text()
    assert text.count("\n## ") == len(SIMULATED.split(","))
    assert text.count("OSDI 2020") >= 6
    page = out.with_suffix(".html").read_text()
    assert page.count("<h2>") == text.count("\n## ") and "<script" not in page
    files = {path: path.stat().st_mtime_ns for path in kept.rglob("*.json")}
    assert len(files) > 20
    capsys.readouterr()
    untimed = SIMULATED.removesuffix(",time")
    assert reproduce.main([*asked, "--sections", untimed]) == 0
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*.json")} == files
    assert text.startswith(out.read_text().rstrip())


def test_without_data_only_a_quick_report_can_be_had(tmp_path, capsys):
    with pytest.raises(SystemExit):
        reproduce.main([])
    assert "--data DIR is needed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        reproduce.main(["--data", str(tmp_path)])
    assert "has no folder gavel/" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        reproduce.main(["--quick", "--sections", "speed"])
    assert "no section speed" in capsys.readouterr().err


def test_entities_get_their_weights_once_all_have_jobs_enough():
    section = hierarchy.hierarchical(Bench(None, quick=True))
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    for row in table.rows:
        if row[1] == "68 to 108":
            got = [float(cell.split("/")[0]) for cell in row[3:]]
            assert got == pytest.approx([100 / 6, 100 / 3, 50], abs=3)


def test_verdicts_name_what_is_worse():
    bench = Bench(None, quick=True)
    result = bench.on_published("A", "isolated")["isolated"]
    hours = result.avg_jct_s / 3600
    near = Reference("A", "isolated", "isolated", jct_h=hours / 1.02, serves=("jct",))
    assert original.verdict(near, result) == "ok"
    far = dataclasses.replace(near, jct_h=hours / 1.1)
    assert original.verdict(far, result) == "**jct is 10 % above**"
    assert original.verdict(dataclasses.replace(far, serves=()), result) == "ok"


def test_references_are_policies_there_are():
    assert {each.policy for each in REFERENCES} <= set(policy_names())
    assert all(each.serves for each in REFERENCES)


def test_the_load_a_cluster_bears():
    # One kind, twice as fast on one type: knowing types changes nothing for a single kind.
    one = ThroughputTable(
        alone={("v100", False): {("x", 1): 2.0}, ("k80", False): {("x", 1): 1.0}}, beside={}
    )
    hours = mean_duration_s() / 3600
    for aware in (True, False):
        found = sustained_jobs_per_hour(one, "v100=3,k80=5", several=False, aware=aware)
        assert found == pytest.approx((3 + 5 / 2) / hours)
    # Two kinds: x does ten times as much on the P100, y a tenth. A part p of the P100 is y's.
    two = ThroughputTable(
        alone={
            ("v100", False): {("x", 1): 1.0, ("y", 1): 1.0},
            ("p100", False): {("x", 1): 10.0, ("y", 1): 0.1},
        },
        beside={},
    )
    aware = sustained_jobs_per_hour(two, "v100=1,p100=1", several=False, aware=True)
    blind = sustained_jobs_per_hour(two, "v100=1,p100=1", several=False, aware=False)
    # Both kinds do equal work: 1 + p / 10 = 10 (1 - p).
    assert aware == pytest.approx(2 * (1 + 0.1 * 9 / 10.1) / hours)
    # On the mix x does 5.5 and y 0.55 of a V100: 1 / 5.5 + 1 / 0.55 = 2 accelerators of 2.
    assert blind == pytest.approx(2 / hours)


def test_parts_of_the_time_add_up(monkeypatch):
    bench = Bench(None, quick=True)
    parts = speed.time_of(bench, "A")
    assert len(parts) == 4 and all(seconds >= 0 for seconds in parts.values())


def test_made_up_rates_are_always_the_same():
    assert made_up_table() == made_up_table()


def test_cells_are_escaped_and_marked():
    section = Section(
        title="a < b",
        published=("`x` & **y**",),
        blocks=(Table(("h",), (("1 < 2",),)), "text"),
    )
    assert "| 1 < 2 |" in markdown("t", (section,))
    page = html("t", (section,))
    assert "<td>1 &lt; 2</td>" in page and "<code>x</code> &amp; <b>y</b>" in page
