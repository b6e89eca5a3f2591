"""How figures of a report are written."""

from collections.abc import Sequence

import numpy as np

from cloudgavel.documents.simulation import SimulationResult


def hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 3600.0


def number(value: float | None, form: str = "{:.2f}") -> str:
    """Empty if unknown."""
    return "" if value is None or not np.isfinite(value) else form.format(value)


def beside(ours: float | None, theirs: float | None, form: str = "{:.2f}") -> str:
    """Ours / theirs, or ours alone."""
    if ours is None:
        return ""
    return form.format(ours) + (f" / {form.format(theirs)}" if theirs is not None else "")


def jct_h(results: Sequence[SimulationResult]) -> float:
    """Mean over seeds of the mean job time, in hours."""
    return float(np.mean([hours(each.avg_jct_s) for each in results]))


def makespan_h(results: Sequence[SimulationResult]) -> float:
    return float(np.mean([each.makespan_s / 3600.0 for each in results]))


def gave_up(results: Sequence[SimulationResult]) -> str:
    """A note where a run was given up: its figures are then no figures."""
    left = sum(each.jobs - each.jobs_completed for each in results)
    return f"{left} jobs did not end" if left else ""
