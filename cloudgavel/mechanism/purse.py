"""The money of one decision: what each machine may still cost, and who may spend the rest."""

import math
from collections.abc import Iterable, Mapping

from cloudgavel.mechanism.change_over import stop_s
from cloudgavel.mechanism.guards.claims import Claim
from cloudgavel.mechanism.guards.reserve import (
    Liability,
    affordable_wake_s,
    committed_usd,
    liability_of,
    liability_of_launch,
)
from cloudgavel.mechanism.packing import Machine
from cloudgavel.mechanism.situation import Situation
from cloudgavel.mechanism.state import JobView
from cloudgavel.pricing.offer import CapacityType


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
        for machine in situation.state.instances:
            stops = [
                stop_s(job, situation.state.rules)
                for job in situation.state.jobs
                if machine.instance_id in job.instance_ids and job.active and not job.stopping
            ]
            self.liabilities[machine.instance_id] = liability_of(
                machine,
                situation.state,
                situation.on_demand_usd_per_hour,
                stop_s=max(stops, default=0.0),
            )

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
        new = [self._liability(each, job) for each in machines]
        pays_itself = all(each.offer.capacity_type is not CapacityType.SPOT for each in machines)
        aside = [
            each.reserve(name)
            for name, each in self.claims.items()
            if not (pays_itself and name == job.spec.name)
        ]
        everything = [*self.liabilities.values(), *aside, *new]
        if committed_usd(everything, useful_s, self.lag_s) > self.money_usd:
            return False
        return limit_usd is None or committed_usd(new, useful_s, self.lag_s) <= limit_usd

    def launch(self, machines: Iterable[Machine], job: JobView) -> None:
        """Count launched machines among those that cost money."""
        machines = list(machines)
        if all(each.offer.capacity_type is not CapacityType.SPOT for each in machines):
            self.claims.pop(job.spec.name, None)
        for machine in machines:
            self.liabilities[machine.machine_id] = self._liability(machine, job)

    def wake_s(self, at_most_s: float, liabilities: Mapping[str, Liability]) -> float | None:
        """Latest next decision that the money pays for (see ``affordable_wake_s``)."""
        return affordable_wake_s(list(liabilities.values()), self.money_usd, self.lag_s, at_most_s)

    def _liability(self, machine: Machine, job: JobView) -> Liability:
        situation = self._situation
        plain = liability_of_launch(
            machine.machine_id,
            machine.offer,
            machine.usd_per_hour,
            situation.state,
            situation.on_demand_usd_per_hour,
        )
        rules = situation.state.rules
        return Liability(
            instance_id=plain.instance_id,
            usd_per_hour=plain.usd_per_hour,
            wind_down_s=plain.wind_down_s + stop_s(job, rules) + rules.wake_lag_s,
            minimum_left_s=plain.minimum_left_s,
        )
