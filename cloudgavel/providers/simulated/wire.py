"""Between the wire's orders and reports and virtual attempts."""

import math
from dataclasses import replace

from cloudgavel.messages.orders import JobOrder
from cloudgavel.messages.report import JobReport, ProcessState
from cloudgavel.providers.simulated.attempt import Attempt, Phase

_NEVER_S = 1e15
"""Stands for a save period without end: infinity is not JSON."""

_STATES = {
    Phase.WAITING: ProcessState.STARTING,
    Phase.STARTING: ProcessState.STARTING,
    Phase.STEPPING: ProcessState.RUNNING,
    Phase.SAVING: ProcessState.SAVING,
    Phase.HOLDING: ProcessState.SAVING,
    Phase.STOPPED: ProcessState.STOPPED,
    Phase.EXITED: ProcessState.EXITED,
    Phase.LOST: ProcessState.STOPPED,
}


def checked_order(order: JobOrder) -> JobOrder:
    """Return the order with finite terms; ``ValueError`` where they are missing or impossible."""
    terms = order.rehearsal
    if terms is None:
        raise ValueError(f"the order for {order.job} has no rehearsal terms")
    if not (terms.steps_per_s > 0 and math.isfinite(terms.steps_per_s)):
        raise ValueError(f"{order.job} cannot run at {terms.steps_per_s} steps/s")
    if not (0 <= terms.restore_s < math.inf and 0 <= terms.save_s < math.inf):
        raise ValueError(f"{order.job} needs finite times for restore and save")
    period_s = terms.save_every_s
    if math.isnan(period_s) or period_s <= 0:
        raise ValueError(f"{order.job} cannot save every {period_s} s")
    if period_s > _NEVER_S:
        terms = replace(terms, save_every_s=_NEVER_S)
    return replace(order, rehearsal=terms)


def job_report(attempt: Attempt, at_s: float) -> JobReport:
    """Say of an attempt what its agent would at ``at_s``."""
    steps = attempt.phase in (Phase.STEPPING, Phase.SAVING)
    size = attempt.terms.checkpoint_bytes
    return JobReport(
        job=attempt.job,
        attempt=attempt.attempt,
        state=_STATES[attempt.phase],
        step=attempt.step_at(at_s),
        restored_step=attempt.restored_step,
        saved_step=attempt.saved_step,
        saved_bytes=size if attempt.commits else None,
        uploaded_bytes=attempt.commits * (size or 0),
        downloaded_bytes=0
        if attempt.began_at_s is None or attempt.restored_step == 0
        else size or 0,
        save_sequence_done=attempt.sequence_done,
        save_error=attempt.save_error,
        exit_code=attempt.exit_code,
        steps_per_s=attempt.terms.steps_per_s if steps else None,
        error=attempt.error,
    )
