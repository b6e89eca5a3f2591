"""Policies on rented machines: the same jobs in the same markets, under each of them.

Every pair of policy and seed is a whole run of ``runtime.loop`` with ``mechanism.decide``, a
virtual clock and the simulated clouds (``simulator.virtual_run``). The seed draws the market, and
the jobs where they are generated.
"""

import hashlib
import time
from dataclasses import dataclass, replace

import numpy as np

from cloudgavel import __version__
from cloudgavel.documents.simulation import SimulationDocument, SimulationResult
from cloudgavel.documents.simulation_detail import PolicyDetail
from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.mechanism.state import ClusterState
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.pricing.market import Market
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import AgentChannel
from cloudgavel.providers.simulated.agents import VirtualAgents
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.runtime.assemble import bind_policy, rehearsal_market, rehearsal_offers
from cloudgavel.simulator.compare import belief_notes, described
from cloudgavel.simulator.generate import GeneratorSettings, generated_workload
from cloudgavel.simulator.market_range import cheapest_places, without_explanations
from cloudgavel.simulator.progress_reports import TRUE_REPORTS, ProgressReports
from cloudgavel.simulator.rented.believed import believed_run
from cloudgavel.simulator.rented.jobs import run_of_workload
from cloudgavel.simulator.rented.outcome import rented_detail, rented_result
from cloudgavel.simulator.rented.recorded import RecordedMarket, traced_market
from cloudgavel.simulator.rented.untrue import UntrueAgents
from cloudgavel.simulator.throughputs import ThroughputTable
from cloudgavel.simulator.virtual_run import VirtualRun, virtual_run

START_AT_S = 1_800_000_000.0
"""Where virtual time begins; nothing depends on it."""


@dataclass(frozen=True, kw_only=True)
class RentedComparison:
    """What is compared: the jobs of a run, or a generator, in the markets of the seeds."""

    policies: tuple[str, ...]
    offers: tuple[Offer, ...]
    seeds: tuple[int, ...]
    run: RunSpec | None = None
    generator: GeneratorSettings | None = None
    table: ThroughputTable | None = None
    """Of the generated jobs."""
    round_s: float = 360.0
    """Of the generated jobs' run."""
    budget_usd: float | None = None
    recorded: RecordedMarket | None = None
    measured_share: float | None = None
    """Of the throughputs that policies know at first; ``None`` = all."""
    reports: ProgressReports = TRUE_REPORTS
    spread_share: float = 1.0
    """Part of its steps/s that a gang does on several machines; policies find out."""
    notes: tuple[str, ...] = ()
    """What a reader should know of the jobs."""

    def pairs(self) -> list[tuple[str, int | None]]:
        """Every policy with every seed, seeds outermost."""
        return [(policy, seed) for seed in self.seeds for policy in self.policies]

    def run_for(self, seed: int) -> RunSpec:
        """The jobs of a seed (the given ones if there is no generator)."""
        if self.run is not None:
            return self.run
        assert self.generator is not None and self.table is not None
        dice = np.random.default_rng(seed)
        workload = generated_workload(self.table, self.generator, dice, name=f"generated-{seed}")
        return run_of_workload(workload, self.table, round_s=self.round_s)

    def every_job(self) -> RunSpec:
        """The jobs of all seeds in one run, for what they accept together; not to be run."""
        runs = [self.run_for(seed) for seed in (self.seeds if self.run is None else (0,))]
        return replace(runs[0], jobs=tuple(job for run in runs for job in run.jobs))

    def market_for(self, run: RunSpec, seed: int) -> Market:
        """The market of a seed: drawn, or recorded with a start drawn by the seed."""
        drawn = replace(rehearsal_market(run, START_AT_S), seed=seed)
        if self.recorded is None:
            return drawn
        return traced_market(
            self.recorded, seed=seed, start_at_s=START_AT_S, otherwise=drawn, boot=run.rehearsal
        )

    def digest(self) -> str:
        """Of everything a result depends on but policy and seed."""
        run = self.run
        if run is not None:
            jobs = tuple(replace(job, line=None) for job in run.jobs)
            run = replace(run, source=None, jobs=jobs, policy="", budget_usd=None)
        content = (
            __version__,
            run,
            self.generator,
            self.table,
            self.round_s,
            self.offers,
            self.budget_usd,
            self.recorded,
            self.measured_share,
            self.reports,
            self.spread_share,
        )
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def simulate(self, policy: str, seed: int | None) -> SimulationResult:
        """Run one policy in the market of a seed."""
        timer = _Timer(policy)
        done = self._done(timer, seed)
        return rented_result(done, policy=policy, seed=seed, solve_s=timer.spent_s)

    def details(self) -> tuple[PolicyDetail, ...]:
        """Simulate the first seed of every policy once more, for drawings."""
        return tuple(
            rented_detail(self._done(_Timer(name), self.seeds[0]), policy=name)
            for name in self.policies
        )

    def _done(self, timer: "_Timer", seed: int | None) -> VirtualRun:
        assert seed is not None
        run = believed = self.run_for(seed)
        if self.measured_share is not None:
            believed = believed_run(run, measured_share=self.measured_share, seed=seed)

        def untrue(agents: VirtualAgents, cloud: SimulatedCloud) -> AgentChannel:
            return UntrueAgents(
                agents,
                cloud,
                truth=run,
                reports=self.reports,
                seed=seed,
                spread_share=self.spread_share,
            )

        is_untrue = (
            self.measured_share is not None or not self.reports.are_true or self.spread_share != 1.0
        )
        return virtual_run(
            believed,
            offers=self.offers,
            market=self.market_for(run, seed),
            decide=timer,
            now_s=START_AT_S,
            budget_usd=self.budget_usd,
            best_effort=True,
            channel_of=untrue if is_untrue else None,
        )

    def frame(self) -> SimulationDocument:
        """Return the document without results."""
        run = self.run_for(self.seeds[0])
        name = run.name if self.run is not None else described(self.generator)
        clouds = sorted({offer.provider for offer in self.offers})
        market = f"{len(self.offers)} offers of {', '.join(clouds)}"
        if self.recorded is not None:
            market += f", {len(self.recorded.traces)} of them recorded"
        spread: tuple[str, ...] = ()
        if self.spread_share != 1.0:
            spread = (f"gangs on several machines do {100 * self.spread_share:g}% of their rate",)
        return SimulationDocument(
            workload=name,
            cluster=(),
            market=market,
            budget_usd=self.budget_usd,
            round_s=run.round_s,
            change_over_s=0.0,
            measured_jobs=None,
            results=(),
            summaries=(),
            differences=(),
            notes=(
                *self.notes,
                *(() if self.recorded is None else self.recorded.notes),
                *belief_notes(self.measured_share, self.reports),
                *spread,
            ),
        )


class _Timer:
    """``mechanism.decide`` with its policy bound, and the CPU seconds that it took."""

    def __init__(self, policy: str) -> None:
        self.spent_s = 0.0
        self._decide = bind_policy(without_explanations(policy_named(policy)))

    def __call__(self, state: ClusterState) -> RoundPlan:
        began_s = time.process_time()
        plan = self._decide(state)
        self.spent_s += time.process_time() - began_s
        return plan


def rentable_offers(
    run: RunSpec, catalog: Catalog, recorded: RecordedMarket | None = None
) -> tuple[Offer, ...]:
    """Return the offers to simulate with: the cheapest places of each kind, and all recorded ones.

    Raises ``UsageError`` when a job has no offer at all.
    """
    every = rehearsal_offers(run, catalog)
    kept = {offer.offer_id: offer for offer in cheapest_places(every)}
    for offer in every:
        if recorded is not None and offer.offer_id in recorded.traces:
            kept[offer.offer_id] = offer
    there = {offer.accelerator for offer in kept.values()}
    for job in run.jobs:
        if not any(request.accelerator in there for request in job.accelerators):
            wanted = ", ".join(request.label for request in job.accelerators)
            raise UsageError(
                f"no cloud that was asked for rents what `{job.name}` runs on",
                facts=[("it accepts", wanted), ("rented there", ", ".join(sorted(there)))],
            )
    return tuple(kept[offer_id] for offer_id in sorted(kept))
