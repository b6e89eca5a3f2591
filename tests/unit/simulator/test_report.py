"""The HTML report: self-contained, well-formed, the same bytes for the same documents."""

import re
import xml.etree.ElementTree as ElementTree

from cloudgavel.simulator.cluster_run import ClusterRunSettings
from cloudgavel.simulator.compare import Comparison, compare, document_of
from cloudgavel.simulator.detail import details_of
from cloudgavel.views.simulation_report import simulation_report
from tests.unit.simulator.building import a_job, a_table, a_workload, types


def a_comparison() -> Comparison:
    jobs = [a_job(f"j<{number}>", 900.0 * number, kind="picky") for number in range(1, 6)]
    return Comparison(
        policies=("fifo", "max_min_fairness"),
        table=a_table(),
        types=types(2, 1),
        settings=ClusterRunSettings(),
        workload=a_workload(*jobs),
    )


def a_report() -> str:
    comparison = a_comparison()
    return simulation_report(document_of(comparison, compare(comparison)), details_of(comparison))


def test_the_page_needs_nothing_from_outside() -> None:
    page = a_report()
    assert "<script" not in page
    assert not re.search(r"(src|href)\s*=|url\(|https?://", page)


def test_every_drawing_is_well_formed_and_says_what_it_shows() -> None:
    drawings = re.findall(r"<svg.*?</svg>", a_report(), flags=re.DOTALL)
    assert len(drawings) == 5
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        assert root.find("title") is not None and root.find("desc") is not None
        assert "nan" not in drawing.lower()


def test_timings_apart_the_same_comparison_gives_the_same_page() -> None:
    def without_timings(page: str) -> str:
        return re.sub(r"\d+\.\d\ds", "", page)

    assert without_timings(a_report()) == without_timings(a_report())


def test_bars_of_the_drawing_cover_what_was_in_use() -> None:
    comparison = a_comparison()
    details = details_of(comparison)
    results = compare(comparison)
    for detail, result in zip(details, results, strict=True):
        held_s = sum(bar.to_s - bar.from_s for bar in detail.bars)
        assert abs(held_s - result.utilization * 3 * result.makespan_s) < 1e-3
        assert detail.busy[-1][1] == 0
        rows = {bar.accelerator for bar in detail.bars}
        assert rows <= {0, 1, 2}
