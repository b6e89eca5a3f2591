"""A round while its jobs are being placed."""

from collections.abc import Mapping

from cloudgavel.mechanism.change_over import restore_s, stop_s
from cloudgavel.mechanism.guards.promises import (
    Promises,
    cost_to_end_usd,
    least_cost_to_end_usd,
)
from cloudgavel.mechanism.guards.safety_net import latest_on_demand_start_at_s, stepping_s
from cloudgavel.mechanism.packing import Kind, Machine, Room, kind_of, machines_of
from cloudgavel.mechanism.placement import Assignment, Placement
from cloudgavel.mechanism.purse import Purse
from cloudgavel.mechanism.situation import Situation, usd
from cloudgavel.mechanism.state import JobView
from cloudgavel.mechanism.wants import Want, earliest


class Draft:
    """What is placed so far, and what every step of placing asks and does."""

    def __init__(
        self,
        situation: Situation,
        wants: Mapping[str, Want],
        promises: Promises,
        moves: Mapping[str, int],
        on_demand_now: Mapping[str, int],
        purse: Purse,
    ) -> None:
        """Begin with the machines that live and the processes on them."""
        self.situation = situation
        self.wants = wants
        self.promises = promises
        self.promised = frozenset(promises.held)
        self.moves = moves
        self.on_demand_now = on_demand_now
        self.purse = purse
        self.room = Room(situation.state)
        self.machines = machines_of(situation)
        self.by_kind: dict[Kind, list[Machine]] = {}
        for machine in self.machines.values():
            self.by_kind.setdefault(kind_of(machine.offer), []).append(machine)
        self.answer = Assignment(machines=self.machines)
        self.ordinal = 0
        self.paid_for: set[str] = set()
        """Jobs whose money has been taken from what is free."""
        self.unplaced: dict[str, None] = {}

    def rank(self, name: str) -> tuple[int, float, float, str]:
        """On-demand rescues by slack, then promises by slack, then the others by weight."""
        job = self.situation.job(name)
        latest = latest_on_demand_start_at_s(self.situation, name)
        slack = latest if latest is not None else self.aim_at_s(name) or 0.0
        if name in self.on_demand_now:
            return (0, slack, 0.0, name)
        if not self.wants[name].columns and name not in self.situation.held:
            return (3, -job.spec.weight, slack, name)
        if name in self.promised:
            return (1, -job.spec.weight, slack, name)
        return (2, -job.spec.weight, slack, name)

    def is_paid(self, name: str) -> bool:
        """Promised, paid for to the end, or the one that may use up the rest."""
        return (
            name in self.promised or name in self.promises.funded or name == self.promises.partial
        )

    def rest_pays(self, name: str, machines: list[Machine]) -> bool:
        """Whether the rest of the money pays for one more round of its one job, and the end."""
        if name != self.promises.partial:
            return False
        state = self.situation.state
        longest_s = state.round_s + state.rules.terminate_confirm_s + state.rules.wake_lag_s
        longest_s += stop_s(self.situation.job(name), state.rules)
        rent = sum(each.usd_per_hour for each in machines)
        return usd(rent, longest_s) <= self.promises.partial_usd

    def pays(self, name: str, column: int, machines: list[Machine], useful_s: float) -> bool:
        """Whether the money allows this launch; puts aside what a job without a promise takes.

        Promised jobs are bound by the hard rule only. Jobs paid for to the end must be so in this
        very column, out of what the promises leave; the one that uses up the rest needs a useful
        stay; others get nothing. What a job spends for the policy's due time beyond its expected
        cost must not be needed by others: nobody's end is traded for an earlier one.
        """
        job = self.situation.job(name)
        limit_usd: float | None = 0.0
        total_usd = 0.0
        if name in self.promised:
            limit_usd = None
            if self.wants[name].due_at_s is not None and name not in self.on_demand_now:
                total_usd = max(0.0, self._beyond_expected_usd(name, column))
                if 0 < total_usd > self._spare_usd(name):
                    return False
        elif name in self.promises.funded:
            limit_usd = self.purse.free_usd
            total_usd = cost_to_end_usd(self.situation, name, column)
            dearer = self._beyond_expected_usd(name, column) > 0
            if (
                self.wants[name].due_at_s is not None
                and dearer
                and total_usd > self._spare_usd(name)
            ):
                return False
        elif name == self.promises.partial:
            limit_usd = self.promises.partial_usd
        if total_usd > self.purse.free_usd:
            return False
        if not self.purse.affords(machines, job, useful_s, limit_usd):
            return False
        self.purse.free_usd -= total_usd
        self.paid_for.add(name)
        self.purse.launch(machines, job)
        return True

    def _beyond_expected_usd(self, name: str, column: int) -> float:
        """Cost to the end over the expected cost; 0 or less on the cheapest way there is.

        The cheapest way too has a machine to end and may boot slowly: that is no luxury.
        """
        own_usd = cost_to_end_usd(self.situation, name, column)
        least_usd = least_cost_to_end_usd(self.situation, name)
        return own_usd - max(self.promises.expected_usd.get(name, 0.0), least_usd)

    def _spare_usd(self, name: str) -> float:
        """Free money that no other job needs where it is or goes, or on its cheapest way."""
        needed_usd = 0.0
        for other in sorted((self.promised | self.promises.funded) - self.paid_for - {name}):
            expected_usd = self.promises.expected_usd.get(other, 0.0)
            placement = self.answer.placements.get(other)
            need_usd = expected_usd
            if placement is not None:
                need_usd = max(cost_to_end_usd(self.situation, other, placement.column), need_usd)
            # What is put aside for promises is not free in the first place.
            aside_usd = expected_usd if other in self.promised else 0.0
            if other in self.promises.covered:
                aside_usd = max(aside_usd, self.promises.worst_usd.get(other, 0.0))
            needed_usd += max(0.0, need_usd - aside_usd)
        return self.purse.free_usd - needed_usd

    def put(self, job: JobView, column: int, machines: list[Machine], reason: str) -> None:
        """Place a job that comes to these machines; each counts as rented for it."""
        name = job.spec.name
        used = self.situation.columns[column].accelerators_used
        indices = machines[0].free(used) or ()
        for machine in machines:
            machine.seats[name] = indices
            machine.intended.add(name)
        self.answer.placements[name] = Placement(
            job=name,
            column=column,
            machine_ids=tuple(sorted(each.machine_id for each in machines)),
            indices=indices,
            stays=False,
            reason=reason,
        )

    def cheapest_first(self, name: str) -> list[int]:
        """Columns that can be asked for, by what the job alone pays per step."""
        row = self.situation.row(name)
        rates = self.situation.rates[row]
        return sorted(
            (each for each in self.situation.options(row) if self.situation.columns[each].offers),
            key=lambda each: (self.situation.alone_usd_per_hour(row, each) / rates[each], each),
        )

    def aim_at_s(self, name: str) -> float | None:
        """When a job should end: by its deadline, and by when the policy means it to."""
        return earliest(self.situation.deadlines[name], self.wants[name].due_at_s)

    def finish_at_s(self, job: JobView, column: int, *, boots: bool) -> float:
        """Expected finish of a job that goes to a column now, booting first or not."""
        row = self.situation.row(job.spec.name)
        start_s = restore_s(job) + (self.situation.columns[column].boot_s if boots else 0.0)
        rate = float(self.situation.rates[row, column])
        return self.situation.state.now_s + start_s + stepping_s(job, rate, job.steps_left_if_moved)
