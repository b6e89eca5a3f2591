"""The table of benchmarks: every problem registers itself, a goal missed is said."""

import pkgutil
from dataclasses import replace

import benchmarks.fixed
from benchmarks import table
from benchmarks.measuring import BENCHMARKS, Case, Measured, Own, measured


def test_every_file_registers_the_problem_it_is_named_after(capsys):
    BENCHMARKS["nothing"] = lambda: iter(())
    try:
        assert table.main(["nothing"]) == 0
    finally:
        del BENCHMARKS["nothing"]
    files = {each.name for each in pkgutil.iter_modules(benchmarks.fixed.__path__)}
    assert files - set(table.NOT_PROBLEMS) <= set(BENCHMARKS)
    assert {"planning", "covering"} <= set(BENCHMARKS)
    assert "0 of 0 goals met" in capsys.readouterr().out


def test_a_case_is_measured_and_set_beside_its_goal():
    case = Case(
        size=3, severity="easy", prepare=lambda: lambda: Own(cpu_s=0.5, says="done"), goal_s=0.4
    )
    found = measured(case)
    assert (found.cpu_s, found.says, found.verdict) == (0.5, "done", "MISSED")
    assert found.more_mb >= 0
    row = table.line("toy", found).split()
    assert row[:4] == ["toy", "3", "0.5000", "0.4"] and "MISSED" in row
    assert replace(found, goal_s=0.6).verdict == "ok"
    assert replace(found, goal_s=None).verdict == ""


def test_memory_has_a_goal_too():
    one = Measured(size=1, severity="", cpu_s=0.1, more_mb=600.0, says="", goal_mb=500.0)
    assert one.verdict == "MISSED"
