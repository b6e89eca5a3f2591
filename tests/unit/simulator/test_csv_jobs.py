"""Jobs of other clusters' traces, by a mapping of columns."""

from pathlib import Path

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.simulator.csv_jobs import jobs_from_csv
from cloudgavel.simulator.roofline import roofline_kinds, roofline_table

PHILLY = """jobid,vc,submitted_time,gpu_num,duration
app_1,ee9e8c,2017-10-03 14:22:11,1,3600
app_2,6214e9,2017-10-03 15:22:11,8,7200.5
app_3,6214e9,2017-10-03 15:22:12,0,100
app_4,6214e9,2017-10-03 15:22:13,2,
"""
PHILLY_COLUMNS = {
    "name": "jobid",
    "arrives_s": "submitted_time",
    "gang_size": "gpu_num",
    "duration_s": "duration",
    "entity": "vc",
}
ALIBABA = """job_name,inst_num,plan_gpu,start_time,end_time
a1,1,25,194000000,194003600
a1,4,50,194000600,194001200
"""
ALIBABA_COLUMNS = {
    "arrives_s": "start_time",
    "gang_size": "inst_num*plan_gpu/100",
    "duration_s": "end_time-start_time",
}


def read(text: str, columns: dict[str, str], **more: object):
    return jobs_from_csv(Path("t.csv"), text, columns, roofline_table(), **more)


def test_a_trace_with_dates_and_durations() -> None:
    workload = read(PHILLY, PHILLY_COLUMNS)
    one, eight = workload.jobs
    assert (one.arrives_s, eight.arrives_s) == (0.0, 3600.0)
    assert (one.gang_size, eight.gang_size) == (1, 8)
    table = roofline_table()
    for job, duration_s in ((one, 3600.0), (eight, 7200.5)):
        assert job.kind in roofline_kinds()
        rate = table.rate((job.kind, job.gang_size), "V100")
        assert job.total_steps == pytest.approx(duration_s * rate)
    assert eight.entity == "6214e9"
    assert workload.notes == ("1 row is left out: no GPU", "1 row is left out: no duration")


def test_parts_of_a_gpu_and_spans_between_columns() -> None:
    quarter, two = read(ALIBABA, ALIBABA_COLUMNS).jobs
    assert (quarter.gang_size, two.gang_size) == (1, 2)
    assert (quarter.arrives_s, two.arrives_s) == (0.0, 600.0)
    assert quarter.total_steps == pytest.approx(3600.0)


def test_a_job_keeps_its_kind_whatever_stands_around_it() -> None:
    whole = {job.name: job.kind for job in read(PHILLY, PHILLY_COLUMNS).jobs}
    lines = PHILLY.splitlines()
    part = read("\n".join([lines[0], lines[2]]), PHILLY_COLUMNS).jobs
    assert part[0].kind == whole["app_2"]


def test_gangs_of_which_nothing_is_known_are_left_out_and_counted() -> None:
    workload = read(PHILLY.replace(",8,", ",999,"), PHILLY_COLUMNS)
    assert len(workload.jobs) == 1
    assert "no throughput is known of 999 GPUs at once" in workload.notes[0]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({**PHILLY_COLUMNS, "gang_size": "gpus"}, "no column gpus"),
        ({**PHILLY_COLUMNS, "duration_s": "end-start"}, "no column end-start"),
        ({}, "no column total_steps"),
        ({**PHILLY_COLUMNS, "gang_size": "vc"}, r"t\.csv:2 is not a job"),
    ],
)
def test_columns_that_are_not_there_are_named(columns: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(PHILLY, columns)
