"""Between the loop and the virtual agents: machines run as they do, whatever the loop believes.

The loop orders an attempt at the rate that it believes in; the machine does its true one, a gang
that is spread over several machines a part of it. Reports go up as ``simulator.progress_reports``
has them.
"""

from collections.abc import Mapping
from dataclasses import replace

from cloudgavel.jobs.spec import AcceleratorRequest, RunSpec
from cloudgavel.messages.orders import JobOrder, Orders
from cloudgavel.messages.report import JobReport, ProcessState, Report
from cloudgavel.providers.simulated.agents import VirtualAgents
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.simulator.progress_reports import ProgressReports
from cloudgavel.simulator.rented.believed import true_rates

_TOLD_AS_IT_IS = (ProcessState.STOPPED, ProcessState.EXITED)


class UntrueAgents:
    """Implements ``AgentChannel``."""

    def __init__(
        self,
        agents: VirtualAgents,
        cloud: SimulatedCloud,
        *,
        truth: RunSpec,
        reports: ProgressReports,
        seed: int,
        spread_share: float = 1.0,
    ) -> None:
        """``truth``: the run with the steps/s that its jobs really do.

        ``spread_share``: part of it that a gang on several machines does.
        """
        self._agents, self._cloud = agents, cloud
        self._steps_total = {job.name: job.steps_total for job in truth.jobs}
        self._rates = {job.name: true_rates(job) for job in truth.jobs}
        self._reports, self._spread_share = reports, spread_share
        self._factor = reports.factors(self._rates, seed)
        self._told: dict[tuple[str, int], tuple[float, int]] = {}

    def send(self, orders: Orders) -> None:
        """Pass orders on with the true rate in their terms."""
        accelerator = self._cloud.offer_of(orders.instance_id).accelerator
        jobs = tuple(self._true_order(order, accelerator) for order in orders.jobs)
        self._agents.send(replace(orders, jobs=jobs))

    def heard_since_s(self) -> float:
        """Return the agents' own answer."""
        return self._agents.heard_since_s()

    def reports(self) -> Mapping[str, Report]:
        """Return every instance's report as its jobs tell it."""
        found = self._agents.reports()
        if self._reports.are_true:
            return found
        return {
            instance_id: replace(
                report,
                jobs=tuple(self._told_report(job, report.heartbeat_at_s) for job in report.jobs),
            )
            for instance_id, report in found.items()
        }

    def _true_order(self, order: JobOrder, accelerator: str) -> JobOrder:
        if order.rehearsal is None:
            return order
        count = max(1, len(order.accelerator_indices)) * order.world_size
        request = AcceleratorRequest(accelerator=accelerator, count=count)
        rate = self._rates[order.job][request.label]
        if order.world_size > 1:
            rate *= self._spread_share
        return replace(order, rehearsal=replace(order.rehearsal, steps_per_s=rate))

    def _told_report(self, report: JobReport, at_s: float) -> JobReport:
        if report.state in _TOLD_AS_IT_IS:
            return report
        factor = self._factor[report.job]
        done = round(factor * (report.step - report.restored_step))
        step = min(report.restored_step + done, self._steps_total[report.job])
        key = (report.job, report.attempt)
        before_s, before = self._told.get(key, (-float("inf"), 0))
        if at_s - before_s >= self._reports.late_s:
            self._told[key] = (at_s, step)
        else:
            step = before
        rate = report.steps_per_s
        return replace(
            report,
            step=max(step, report.saved_step or 0, report.restored_step),
            steps_per_s=None if rate is None else rate * factor,
        )
