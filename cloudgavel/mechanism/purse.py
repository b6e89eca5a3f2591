"""The money of one decision: what each machine may still cost, and who may spend the rest."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cloudgavel.mechanism.change_over import stop_s
from cloudgavel.mechanism.checkpoint_costs import NO_TRAFFIC, traffic_there, traffic_to_come
from cloudgavel.mechanism.guards.claims import Claim, claim_in
from cloudgavel.mechanism.guards.reserve import (
    Liability,
    affordable_wake_s,
    committed_usd,
    liability_of,
    liability_of_launch,
    storage_liability,
    with_traffic,
)
from cloudgavel.mechanism.packing import Machine
from cloudgavel.mechanism.situation import Situation
from cloudgavel.mechanism.state import JobView
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.units import HOUR_S


class Purse:
    """Hard money (nothing may exceed it) and free money (what the promises do not need).

    ``money_usd`` is budget less spent, ``free_usd`` what is left of it for jobs without a promise;
    infinite without a budget. ``claims``: what covered promises that are not on demand yet have
    put aside.
    """

    def __init__(
        self,
        situation: Situation,
        money_usd: float | None,
        free_usd: float,
        claims: Mapping[str, Claim] | None = None,
    ) -> None:
        self._situation = situation
        self.money_usd = math.inf if money_usd is None else money_usd
        self.free_usd = free_usd
        self.claims = dict(claims or {})
        self.liabilities: dict[str, Liability] = {}
        self._claims_usd = math.fsum(self._claim_usd(each) for each in self.claims.values())
        self._ended_now_usd = 0.0
        self._usd_per_hour = 0.0
        for machine in situation.state.instances:
            stops = [
                stop_s(job, situation.state.rules)
                for job in situation.state.jobs
                if machine.instance_id in job.instance_ids and job.active and not job.stopping
            ]
            traffic = [
                traffic_there(situation.state, job, machine, goes_on=not job.stopping)
                for job in (situation.state.jobs if situation.state.store_cloud else ())
                if machine.instance_id in job.instance_ids and job.active
            ]
            plain = liability_of(
                machine,
                situation.state,
                situation.on_demand_usd_per_hour,
                stop_s=max(stops, default=0.0),
            )
            self._count(with_traffic(plain, sum(traffic, NO_TRAFFIC)))
        storage = storage_liability(situation.state)
        if storage is not None:
            self._count(storage)

    @property
    def lag_s(self) -> float:
        """How late a decision may come."""
        return self._situation.state.rules.wake_lag_s

    def affords(
        self, machines: Iterable[Machine], job: JobView, useful_s: float, limit_usd: float | None
    ) -> bool:
        """Whether launching these machines leaves enough for a useful stay of the job on them.

        Everything that lives now is assumed to live as long, and what covered promises claim stays
        (its own claim pays for going on demand). ``limit_usd`` bounds the rent of the stay;
        ``None`` = only the hard rule counts.
        """
        machines = list(machines)
        new = [self._liability(each, job, leads=not n) for n, each in enumerate(machines)]
        on_demand = all(each.offer.capacity_type is not CapacityType.SPOT for each in machines)
        own = self.claims.get(job.spec.name) if on_demand else None
        aside_usd = self._claims_usd - (0.0 if own is None else self._claim_usd(own))
        column = machines[0].column
        if own is not None and column is not None:
            # It goes there for good: all of it must be paid for, and in time.
            row = self._situation.row(job.spec.name)
            whole = claim_in(self._situation, row, column, self._situation.state.now_s)
            if own.in_time and not whole.in_time:
                return False
            aside_usd += self._claim_usd(whole)
        elif own is None:
            aside_usd += committed_usd(new, useful_s, self.lag_s)
        # At most this much: in most rounds it fits, and nothing has to be added up.
        most_usd = self._ended_now_usd + self._usd_per_hour * (useful_s + self.lag_s) / HOUR_S
        if most_usd + aside_usd > self.money_usd:
            live_usd = committed_usd(self.liabilities.values(), useful_s, self.lag_s)
            if live_usd + aside_usd > self.money_usd:
                return False
        return limit_usd is None or committed_usd(new, useful_s, self.lag_s) <= limit_usd

    def launch(self, machines: Iterable[Machine], job: JobView) -> None:
        """Count launched machines among those that cost money."""
        machines = list(machines)
        for number, machine in enumerate(machines):
            self._count(self._liability(machine, job, leads=number == 0))
        if all(each.offer.capacity_type is not CapacityType.SPOT for each in machines):
            self._goes_on_demand(machines, job)

    def _goes_on_demand(self, machines: Sequence[Machine], job: JobView) -> None:
        """The claim of a job becomes rent of the machines it goes to."""
        column = machines[0].column
        claim = self.claims.pop(job.spec.name, None)
        if claim is None:
            return
        self._claims_usd -= self._claim_usd(claim)
        if column is None:
            return
        row = self._situation.row(job.spec.name)
        whole = claim_in(self._situation, row, column, self._situation.state.now_s)
        for each in machines:
            self._count(replace(self.liabilities[each.machine_id], least_s=whole.span_s))

    def _count(self, liability: Liability) -> None:
        """Add or replace what one machine may cost."""
        before = self.liabilities.get(liability.instance_id)
        if before is not None:
            self._ended_now_usd -= before.usd(0.0, 0.0)
            self._usd_per_hour -= before.usd_per_hour + before.traffic_usd_per_hour
        self.liabilities[liability.instance_id] = liability
        self._ended_now_usd += liability.usd(0.0, 0.0)
        self._usd_per_hour += liability.usd_per_hour + liability.traffic_usd_per_hour

    def _claim_usd(self, claim: Claim) -> float:
        return claim.reserve("").usd(0.0, 0.0)

    def wake_s(self, at_most_s: float, liabilities: Mapping[str, Liability]) -> float | None:
        """Latest next decision that the money pays for (see ``affordable_wake_s``)."""
        return affordable_wake_s(list(liabilities.values()), self.money_usd, self.lag_s, at_most_s)

    def _liability(self, machine: Machine, job: JobView, *, leads: bool) -> Liability:
        situation = self._situation
        plain = liability_of_launch(
            machine.machine_id,
            machine.offer,
            machine.usd_per_hour,
            situation.state,
            situation.on_demand_usd_per_hour,
        )
        rules = situation.state.rules
        lasting = replace(
            plain, wind_down_s=plain.wind_down_s + stop_s(job, rules) + rules.wake_lag_s
        )
        if machine.column is None:
            return lasting
        column = situation.columns[machine.column]
        return with_traffic(lasting, traffic_to_come(situation.state, job, column, leads=leads))
