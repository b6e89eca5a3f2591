"""The controllers: told what there is at each step, they answer what to hold. No IO, no clock.

``SpotUnderDeadline`` decides for a batch of jobs that step together; ``SpotController`` is the
same for one job with plain numbers, for anyone's own simulator or control loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.spot.belief import Outlook, first_belief, outlook, seen
from cloudgavel.policies.spot.decision import SpotOpinion, judge, switch_chances
from cloudgavel.policies.spot.regimes import RegimeFamily, step_chain
from cloudgavel.policies.spot.safety import RiskCap
from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT, Bools, Floats, Ints, SpotTerms, SpotView

GENERIC_FAMILY = RegimeFamily()
"""Prior for an offer of which nothing is known."""
_EXPECTED_SWITCH, _SWITCH_WEIGHT = 0.03, 4.0
"""Chance per tick that a machine is lost while another offer is there, before anything was seen,
and how many ticks of looking that guess counts for."""


class SpotUnderDeadline:
    """Least expected cost under deadlines, learning how long spot lasts and stays away.

    Args:
        terms: the batch.
        family: regimes and prior.
        shelf: tables; share one between controllers so that each table is built once.
        cap: the cap on risk.

    """

    def __init__(
        self,
        terms: SpotTerms,
        *,
        family: RegimeFamily = GENERIC_FAMILY,
        shelf: TableShelf | None = None,
        cap: RiskCap | None = None,
    ) -> None:
        self._terms = terms
        self._family = family
        self._shelf = TableShelf() if shelf is None else shelf
        self._cap = RiskCap() if cap is None else cap
        self._chain = step_chain(family, terms.tick_s)
        self._market: Outlook | None = None
        self._offers: Outlook | None = None
        self._ratio_sum: Floats | None = None
        self._steps = 0
        self._switch_sum = np.full(len(terms.work_s), _EXPECTED_SWITCH * _SWITCH_WEIGHT)
        self._switch_count = np.full(len(terms.work_s), _SWITCH_WEIGHT)
        self._cap_usd: Floats | None = None
        self.opinion: SpotOpinion | None = None
        """Why the last answer was given."""

    def decide(self, view: SpotView) -> Ints:
        """Return (J,) answers for the step that begins now; to be called once per tick."""
        self._look(view)
        if self._cap_usd is None:
            self._cap_usd = self._cap.usd(self._terms, view.on_demand_usd_per_hour)
        assert self._market is not None
        assert self._ratio_sum is not None
        several = view.available.shape[1] > 1
        offer_return = (
            1 - self._offers.loss_chance()
            if several and self._offers is not None
            else (1 - self._market.loss_chance())[:, None]
        )
        if several:
            self._switch_sum += switch_chances(view.available, offer_return)
            self._switch_count += view.available.any(axis=1)
        self.opinion = judge(
            self._terms,
            view,
            market=self._market,
            offer_return=offer_return,
            table_ratio=self._ratio_sum / self._steps,
            switch_chance=self._switch_sum / self._switch_count if several else 0.0,
            cap_usd=self._cap_usd,
            family=self._family,
            shelf=self._shelf,
        )
        return self.opinion.choice

    def watch(self, available: Bools) -> None:
        """Learn from a tick before the jobs began: (J, O) availability then."""
        self._learn(available)

    def _learn(self, available: Bools) -> None:
        there: Bools = np.asarray(available.any(axis=1))
        belief = (
            first_belief(self._family, there) if self._market is None else seen(self._market, there)
        )
        self._market = outlook(belief, there, self._chain)
        if available.shape[1] > 1:
            each = (
                first_belief(self._family, available)
                if self._offers is None
                else seen(self._offers, available)
            )
            self._offers = outlook(each, available, self._chain)

    def _look(self, view: SpotView) -> None:
        """Learn from what is there now and keep account of prices."""
        self._learn(view.available)
        per_work = view.spot_usd_per_hour / self._terms.work_rate
        if view.extra_spot_usd_per_hour is not None:
            per_work = per_work + view.extra_spot_usd_per_hour / self._terms.work_rate
        price = view.on_demand_usd_per_hour
        if view.extra_on_demand_usd_per_hour is not None:
            price = price + view.extra_on_demand_usd_per_hour
        # Prices move about a level; the level, not the moment, is what the future will cost.
        ratio = per_work.min(axis=1) / np.maximum(price, 1e-9)
        self._ratio_sum = ratio if self._ratio_sum is None else self._ratio_sum + ratio
        self._steps += 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotAnswer:
    """What to hold in the step that begins now, and why."""

    hold: str
    """``wait``, ``spot`` or ``on_demand``."""
    offer: int | None
    """Index of the spot offer to hold, ``None`` otherwise."""
    expected_cost_usd: dict[str, float]
    """By what is held now: ``wait``, ``on_demand``, ``spot/0`` ...; what is not allowed is left
    out."""
    loss_chance: tuple[float, ...]
    """For each offer, the chance that it is not there in the next step."""
    latest_on_demand_start_s: float
    """When the safety net will call for on-demand if nothing happens before."""
    forced: bool
    """The safety net decided."""


class SpotController:
    """One job, plain numbers.

    >>> controller = SpotController(work_s=48 * 3600, deadline_s=60 * 3600, tick_s=600,
    ...                             changeover_s=300)
    >>> answer = controller.step(elapsed_s=0, work_left_s=48 * 3600, available=[True],
    ...                          spot_usd_per_hour=[0.9], on_demand_usd_per_hour=3.0)
    >>> answer.hold
    'spot'

    Call ``step`` once per tick. It keeps its own account of what is held, pending and spent from
    its answers and the availability it is told; pass ``spent_usd`` if you know better. Say
    ``holds_for_tick`` where a machine is never lost within a tick (a simulator's ticks).
    """

    def __init__(
        self,
        *,
        work_s: float,
        deadline_s: float,
        tick_s: float,
        changeover_s: float,
        work_rate: Sequence[float] = (1.0,),
        lost_work_s: float = 0.0,
        holds_for_tick: bool = False,
        family: RegimeFamily = GENERIC_FAMILY,
        shelf: TableShelf | None = None,
        cap: RiskCap | None = None,
    ) -> None:
        self._terms = SpotTerms(
            tick_s=tick_s,
            changeover_s=changeover_s,
            work_s=np.array([work_s], dtype=float),
            deadline_s=np.array([deadline_s], dtype=float),
            work_rate=np.asarray(work_rate, dtype=float),
            lost_work_s=lost_work_s,
            holds_for_tick=holds_for_tick,
        )
        self._policy = SpotUnderDeadline(self._terms, family=family, shelf=shelf, cap=cap)
        self._held = WAIT
        self._pending_s = 0.0
        self._spent_usd = 0.0

    def step(
        self,
        *,
        elapsed_s: float,
        work_left_s: float,
        available: Sequence[bool],
        spot_usd_per_hour: Sequence[float],
        on_demand_usd_per_hour: float,
        spent_usd: float | None = None,
    ) -> SpotAnswer:
        """Answer for the tick that begins at ``elapsed_s`` after the start of the job."""
        if self._held >= 0 and not available[self._held]:
            self._held, self._pending_s = WAIT, 0.0
        view = SpotView(
            elapsed_s=elapsed_s,
            work_left_s=np.array([work_left_s], dtype=float),
            available=np.array([available], dtype=bool),
            spot_usd_per_hour=np.array([spot_usd_per_hour], dtype=float),
            on_demand_usd_per_hour=np.array([on_demand_usd_per_hour], dtype=float),
            held=np.array([self._held]),
            pending_s=np.array([self._pending_s]),
            spent_usd=np.array([self._spent_usd if spent_usd is None else spent_usd]),
        )
        choice = int(self._policy.decide(view)[0])
        opinion = self._policy.opinion
        assert opinion is not None
        self._account(choice, view)
        costs = {
            "wait": float(opinion.wait_usd[0]),
            "on_demand": float(opinion.on_demand_usd[0]),
        } | {f"spot/{index}": float(cost) for index, cost in enumerate(opinion.spot_usd[0])}
        return SpotAnswer(
            hold={WAIT: "wait", ON_DEMAND: "on_demand"}.get(choice, "spot"),
            offer=choice if choice >= 0 else None,
            expected_cost_usd={name: cost for name, cost in costs.items() if np.isfinite(cost)},
            loss_chance=tuple(float(chance) for chance in opinion.loss_chance[0]),
            latest_on_demand_start_s=float(opinion.latest_on_demand_start_s[0]),
            forced=bool(opinion.forced[0]),
        )

    def _account(self, choice: int, view: SpotView) -> None:
        tick_s = self._terms.tick_s
        if choice == WAIT:
            self._held, self._pending_s = WAIT, 0.0
            return
        if choice != self._held:
            self._held, self._pending_s = choice, self._terms.changeover_s
        rate = 1.0 if choice == ON_DEMAND else float(self._terms.rate_of(np.array([choice]))[0])
        price = (
            view.on_demand_usd_per_hour[0]
            if choice == ON_DEMAND
            else view.spot_usd_per_hour[0, choice]
        )
        paid_s = min(tick_s, self._pending_s + float(view.work_left_s[0]) / rate)
        self._spent_usd += float(price) * paid_s / 3600.0
        self._pending_s = max(0.0, self._pending_s - tick_s)
