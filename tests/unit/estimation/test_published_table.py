"""On the published throughputs: estimates are near, their uncertainty is honest, docs are right."""

import math
import os
import re
from pathlib import Path

import numpy as np
import pytest

from cloudgavel.estimation.estimated_table import EstimatedTable, estimated_table
from cloudgavel.estimation.gang_columns import roofline
from cloudgavel.estimation.job_rates import estimated_rates
from cloudgavel.jobs.profiles import PROFILES
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec
from cloudgavel.simulator.throughputs import ThroughputTable
from cloudgavel.simulator.trace_formats import load_throughputs

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "throughputs.md"


@pytest.fixture(scope="module")
def truth() -> ThroughputTable:
    named = os.environ.get("CLOUDGAVEL_DATA")
    path = Path(named or "") / "gavel" / "simulation_throughputs.json"
    if not named or not path.exists():
        pytest.skip("set CLOUDGAVEL_DATA to a folder with gavel/simulation_throughputs.json")
    return load_throughputs(path)


def hidden(truth: ThroughputTable, share: float, seed: int) -> EstimatedTable:
    dice = np.random.default_rng(seed)
    return estimated_table(truth.alone, truth.beside, measured_share=share, dice=dice)


@pytest.mark.parametrize(("share", "median", "p90"), [(0.1, 0.4, 1.5), (0.3, 0.2, 0.8)])
def test_held_out_rates_are_near_and_nearer_than_the_roofline(truth, share, median, p90):
    errors, by_roofline, scaled = [], [], []
    for seed in range(4):
        table = hidden(truth, share, seed)
        rates = table.rates
        held = np.isfinite(rates.truth) & ~rates.known
        errors.append((rates.mean - rates.truth)[held])
        scaled.append(errors[-1] / rates.sd[held])
        expected = roofline(table.columns)
        known = np.where(rates.known, rates.truth, np.nan)
        scale = np.nanmean(known - expected, axis=1)[:, None]
        by_roofline.append((scale + expected - rates.truth)[held])
    relative = np.abs(np.expm1(np.concatenate(errors)))
    baseline = np.abs(np.expm1(np.concatenate(by_roofline)))
    assert np.median(relative) < median and np.percentile(relative, 90) < p90
    assert np.median(relative) < 0.8 * np.median(baseline)
    assert np.percentile(relative, 90) < 0.8 * np.percentile(baseline, 90)
    inside = np.mean(np.abs(np.concatenate(scaled)) < 1.2816)
    assert 0.72 < inside < 0.88


def test_held_out_pairs_are_nearer_than_their_mean_and_honest(truth):
    table = hidden(truth, 0.3, 0)
    errors, scaled, from_mean = [], [], []
    for matrix in table.pairs.values():
        shares = matrix.shares
        held = np.isfinite(shares.truth) & ~shares.known
        errors.append((shares.mean - shares.truth)[held])
        scaled.append(errors[-1] / shares.sd[held])
        from_mean.append(shares.truth[shares.known].mean() - shares.truth[held])
    relative = np.abs(np.expm1(np.concatenate(errors)))
    assert np.median(relative) < 0.5 * np.median(np.abs(np.expm1(np.concatenate(from_mean))))
    assert 0.72 < np.mean(np.abs(np.concatenate(scaled)) < 1.2816) < 0.92


def test_profiles_are_the_published_figures(truth):
    def name(kind: str) -> str:
        found = re.fullmatch(r"(.*?)(?: \(batch size ([0-9]+)\))?", kind)
        assert found is not None
        model = found[1].lower().replace("-", "")
        return model + (f"/bs{found[2]}" if found[2] else "")

    published: dict[str, dict[str, float]] = {}
    for (accelerator, spread), cells in truth.alone.items():
        for (kind, gang), rate in cells.items():
            if rate > 0 and not spread:
                label = accelerator.upper() + (f":{gang}" if gang > 1 else "")
                published.setdefault(name(kind), {})[label] = rate
    assert set(published) == set(PROFILES)
    for profile, rates in published.items():
        assert PROFILES[profile] == pytest.approx(rates, rel=0.005)


def test_the_example_of_the_page_is_recomputed():
    rows = re.findall(r"^\| `(\S+)` \| (\S+) \| (\S+) \| (\S+) \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 3
    requests = tuple(
        AcceleratorRequest(accelerator=name, count=int(count or 1))
        for name, _, count in (label.partition(":") for label in ("V100", *(r[0] for r in rows)))
    )
    job = {"name": "a", "commands": {"any": "x"}, "steps_total": 1, "accelerators": requests}
    found = estimated_rates(JobSpec(**job, throughput_steps_per_s={"V100": 1.9}))
    for label, median, sd, low in rows:
        assert found[label].median_steps_per_s == pytest.approx(float(median), rel=0.01)
        assert found[label].log_sd == pytest.approx(float(sd), abs=0.005)
        assert found[label].low_steps_per_s == pytest.approx(float(low), rel=0.03)
    spec = JobSpec(**job, throughput_steps_per_s={"V100": 1.9}, profile="resnet50/bs32")
    k80 = estimated_rates(spec)["K80"]
    said = re.search(r"counts on (\S+) on the K80 \(median (\S+)\)", PAGE.read_text())
    assert said is not None
    assert math.isclose(k80.low_steps_per_s, float(said[1]), abs_tol=0.005)
    assert math.isclose(k80.median_steps_per_s, float(said[2]), abs_tol=0.005)
