"""A cloud of a hundred lines for property tests of rounds: as nasty as its bounds allow.

Boots, stops and ends take any time up to the worst that ``ReserveRules`` assumes, decisions come
late, launches fail, spot is taken with or without notice, prices rise within the assumed share.
"""

import math
from dataclasses import dataclass, field, replace
from random import Random

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism.actions import Launch, Move, Save, Start, Terminate
from cloudgavel.mechanism.change_over import stop_s
from cloudgavel.mechanism.decide import decide
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.mechanism.state import BlockedOffer, ClusterState, JobView
from cloudgavel.policies.base import Policy
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.pricing.traffic import traffic_rates

BILLED_AT_LEAST_S = 60


@dataclass
class Box:
    """A machine as the world knows it."""

    instance: Instance
    prices: list[tuple[float, float]]
    known_at_s: float
    ready_at_s: float
    dies_at_s: float | None = None
    gone_at_s: float | None = None
    ended_at_s: float | None = None

    def bill_usd(self, now_s: float) -> float:
        end_s = now_s if self.ended_at_s is None else min(self.ended_at_s, now_s)
        start_s = self.prices[0][0]
        seconds = max(0.0, end_s - start_s)
        if self.ended_at_s is not None and self.ended_at_s <= now_s:
            seconds = float(max(BILLED_AT_LEAST_S, math.ceil(seconds - 1e-9)))
        cost, last_s = 0.0, start_s + seconds
        for index, (since_s, rate) in enumerate(self.prices):
            until_s = self.prices[index + 1][0] if index + 1 < len(self.prices) else last_s
            cost += rate * max(0.0, min(until_s, last_s) - since_s) / 3600
        return cost


@dataclass
class World:
    """State plus dice; ``run`` plays decisions against it until nothing is left to do."""

    state: ClusterState
    policy: Policy
    dice: Random
    failures: bool = True
    interruptions: bool = True
    price_moves: bool = True
    slow: bool = True
    """Delays up to the worst; otherwise the expected ones, up to the quantile."""
    spot_gone_at_s: float | None = None
    """From then on there is no spot, and what there is vanishes without a word."""
    boxes: dict[str, Box] = field(default_factory=dict)
    stops_at_s: dict[str, float] = field(default_factory=dict)
    runs_from_s: dict[str, float] = field(default_factory=dict)
    progress: dict[str, float] = field(default_factory=dict)
    finished_at_s: dict[str, float] = field(default_factory=dict)
    plans: list[tuple[ClusterState, RoundPlan]] = field(default_factory=list)
    last_price_at_s: float = -math.inf
    out_of_money: bool = False
    moves: int = 0
    traffic_usd: float = 0.0
    """Of checkpoints on their way; uploads that a lost machine did not finish included."""
    saves: int = 0

    # --- the loop ----------------------------------------------------------------------------

    def run(self, most_rounds: int = 400) -> None:
        for _ in range(most_rounds):
            plan = decide(self.state, self.policy)
            self.plans.append((self.state, plan))
            self._act(plan)
            if plan.out_of_money and not self.state.instances:
                self.out_of_money = True
                break
            if plan.next_wake_at_s is None:
                break
            wake_at_s = plan.next_wake_at_s
            if self.slow:
                wake_at_s += self.dice.uniform(0, self.state.rules.wake_lag_s)
            self._advance(wake_at_s)
        else:
            raise AssertionError(f"still not done after {most_rounds} rounds")

    def bill_usd(self) -> float:
        return sum(each.bill_usd(math.inf) for each in self.boxes.values()) + self.traffic_usd

    def _moved(self, job: JobView, *, saves: int = 0, restores: int = 0) -> None:
        if self.state.store_cloud is None or not job.instance_ids:
            return
        offer = self.boxes[job.instance_ids[0]].instance.offer
        rates = traffic_rates(offer.provider, offer.region, self.state.store_cloud)
        gib = job.checkpoint_gib or 0.0
        self.traffic_usd += rates.usd(gib * saves, gib * restores)
        self.saves += saves

    # --- carrying out ------------------------------------------------------------------------

    def _act(self, plan: RoundPlan) -> None:
        state = self.state
        jobs = {job.spec.name: job for job in state.jobs}
        for action in plan.actions:
            if isinstance(action, Launch):
                self._launch(action)
            elif isinstance(action, Start):
                job = jobs[action.job]
                assert not job.instance_ids, "started while it is somewhere"
                request = next(
                    each for each in job.spec.accelerators if each.label == action.request_label
                )
                jobs[action.job] = replace(
                    job,
                    phase=JobPhase.STARTING,
                    attempt=action.attempt,
                    instance_ids=action.instance_ids,
                    request=request,
                    accelerator_indices=action.accelerator_indices,
                    placed_at_s=state.now_s,
                    started_at_s=job.started_at_s or state.now_s,
                    steps_done=job.saved_steps,
                    save_every_s=action.save_every_s,
                    move_to=(),
                )
                if job.saved_steps > 0:
                    self._moved(jobs[action.job], restores=len(action.instance_ids))
                restore_s = job.spec.checkpoint.restore_s * self._delay()
                self.runs_from_s[action.job] = state.now_s + restore_s
            elif isinstance(action, Move):
                job = jobs[action.job]
                self.moves += 1
                worst_s = stop_s(job, state.rules)
                wait_s = self.dice.uniform(0, worst_s) if self.slow else job.spec.checkpoint.save_s
                self.stops_at_s[action.job] = state.now_s + wait_s
                jobs[action.job] = replace(
                    job,
                    stopping=True,
                    phase=JobPhase.SAVING,
                    stop_asked_at_s=state.now_s,
                    move_to=action.to_instance_ids,
                )
            elif isinstance(action, Save):
                job = jobs[action.job]
                self._moved(job, saves=1)
                jobs[action.job] = replace(job, saved_steps=job.steps_done)
            elif isinstance(action, Terminate):
                box = self.boxes[action.instance_id]
                confirm_s = state.rules.terminate_confirm_s
                wait_s = self.dice.uniform(0, confirm_s) if self.slow else confirm_s / 4
                box.gone_at_s = state.now_s + wait_s
                box.instance = replace(
                    box.instance,
                    state=InstanceState.TERMINATING,
                    terminate_asked_at_s=state.now_s,
                )
        for forecast in plan.forecasts:
            job = jobs[forecast.job]
            jobs[forecast.job] = replace(job, covered=forecast.promise == "covered")
        for each in plan.relaxed:
            if each.promise == "deadline":
                jobs[each.job] = replace(jobs[each.job], promise_released=True)
        self.state = replace(self.state, jobs=tuple(jobs.values()), instances=self._instances())

    def _delay(self) -> float:
        """How many times the expected span something takes."""
        return self.dice.uniform(0.5, self.state.rules.change_over_quantile) if self.slow else 1.0

    def _launch(self, action: Launch) -> None:
        state = self.state
        offers = {each.offer_id: each for each in state.offers}
        wanted = [offers[each] for each in action.offer_ids]
        if self.failures and self.dice.random() < 0.15:
            block = BlockedOffer(
                offer_id=wanted[0].offer_id, until_s=state.now_s + 300, reason="no capacity"
            )
            self.state = replace(self.state, blocked=(*state.blocked, block))
            return
        offer = wanted[self.dice.randrange(len(wanted))] if self.slow else wanted[0]
        price = offer.price_usd_per_hour
        assert price is not None and price <= action.price_limit_usd_per_hour + 1e-12
        boot_s = state.rules.boot_s * self._delay()
        dies = None
        if self.interruptions and offer.capacity_type is CapacityType.SPOT:
            dies = state.now_s + self.dice.expovariate(1 / 3000)
        self.boxes[action.token] = Box(
            instance=Instance(
                instance_id=action.token,
                offer=offer,
                state=InstanceState.REQUESTED,
                price_usd_per_hour=price,
                launched_at_s=state.now_s,
                intended_jobs=action.for_jobs,
            ),
            prices=[(state.now_s, price)],
            known_at_s=state.now_s + (self.dice.uniform(0, 20) if self.slow else 1.0),
            ready_at_s=state.now_s + boot_s,
            dies_at_s=dies,
        )

    # --- time --------------------------------------------------------------------------------

    def _instances(self) -> tuple[Instance, ...]:
        return tuple(each.instance for each in self.boxes.values() if each.ended_at_s is None)

    def _advance(self, wake_at_s: float) -> None:
        """Go to the next event, or to the wake: whichever comes first."""
        now_s = self.state.now_s
        events = [wake_at_s]
        for box in self.boxes.values():
            if box.ended_at_s is None:
                moments = [box.known_at_s, box.ready_at_s, box.dies_at_s, box.gone_at_s]
                if box.dies_at_s is not None:
                    moments.append(box.dies_at_s - 100)
                events.extend(at_s for at_s in moments if at_s is not None and at_s > now_s)
        events.extend(at_s for at_s in self.stops_at_s.values() if at_s > now_s)
        for job in self.state.jobs:
            if job.instance_ids and job.spec.name in self.runs_from_s and job.active:
                begin_s = max(now_s, self.runs_from_s[job.spec.name])
                done_s = begin_s + job.steps_left / self._rate(job) + 0.5
                events.extend((self.runs_from_s[job.spec.name] + 1, done_s))
        if self.spot_gone_at_s is not None:
            events.append(self.spot_gone_at_s)
        at_s = min(each for each in events if each > now_s)
        self._to(at_s)

    def _rate(self, job: JobView) -> float:
        assert job.request is not None
        slower = 1 + job.spec.checkpoint.save_s / job.save_every_s
        return job.throughput_steps_per_s[job.request.label] / slower

    def _to(self, at_s: float) -> None:
        before_s = self.state.now_s
        if self.spot_gone_at_s is not None and at_s >= self.spot_gone_at_s:
            for box in self.boxes.values():
                if box.instance.offer.capacity_type is CapacityType.SPOT:
                    box.dies_at_s = min(box.dies_at_s or math.inf, self.spot_gone_at_s)
            offers = tuple(
                each for each in self.state.offers if each.capacity_type is not CapacityType.SPOT
            )
            self.state = replace(self.state, offers=offers)
        for box in self.boxes.values():
            self._age(box, at_s)
        live = {each.instance_id for each in self._instances()}
        jobs = tuple(self._work(job, before_s, at_s, live) for job in self.state.jobs)
        finished = {job.spec.name for job in jobs if not job.active}
        jobs = tuple(
            replace(job, waits_for=tuple(each for each in job.waits_for if each not in finished))
            for job in jobs
        )
        self._move_prices(at_s)
        self.state = replace(
            self.state,
            now_s=at_s,
            round_number=self.state.round_number + 1,
            jobs=jobs,
            instances=self._instances(),
            spent_usd=sum(each.bill_usd(at_s) for each in self.boxes.values()) + self.traffic_usd,
            blocked=tuple(each for each in self.state.blocked if each.until_s > at_s),
        )

    def _age(self, box: Box, at_s: float) -> None:
        if box.ended_at_s is not None:
            return
        ends = [each for each in (box.dies_at_s, box.gone_at_s) if each is not None]
        if ends and min(ends) <= at_s:
            box.ended_at_s = min(ends)
            return
        if box.instance.state is InstanceState.REQUESTED and at_s >= box.known_at_s:
            box.instance = replace(box.instance, state=InstanceState.BOOTING)
        if box.instance.state is InstanceState.BOOTING and at_s >= box.ready_at_s:
            box.instance = replace(box.instance, state=InstanceState.READY, ready_at_s=at_s)
        silent = self.spot_gone_at_s is not None and box.dies_at_s == self.spot_gone_at_s
        if box.dies_at_s is not None and at_s >= box.dies_at_s - 100 and not silent:
            box.instance = replace(box.instance, notice_ends_at_s=box.dies_at_s)

    def _work(self, job: JobView, before_s: float, at_s: float, live: set[str]) -> JobView:
        name = job.spec.name
        if not job.active or not job.instance_ids:
            return job
        if any(each not in live for each in job.instance_ids):
            self.stops_at_s.pop(name, None)
            if self.state.store_cloud is not None and self.dice.random() < 0.3:
                self._moved(job, saves=1)
            return self._off(job, saved=False)
        begin_s = max(before_s, self.runs_from_s[name])
        if at_s > begin_s:
            end_s = min(at_s, self.stops_at_s.get(name, at_s))
            # Fractions of steps are carried over, or frequent looks would slow a job down.
            exact = max(self.progress.get(name, 0.0), float(job.steps_done))
            if exact >= job.steps_done + 1:
                exact = float(job.steps_done)
            exact += max(0.0, end_s - begin_s) * self._rate(job)
            self.progress[name] = exact
            done = min(job.spec.steps_total, int(exact + 1e-6))
            saved = job.saved_steps
            due = int((done - saved) / (job.save_every_s * self._rate(job)))
            if due >= 1:
                self._moved(job, saves=due)
                saved = done
            phase = JobPhase.RUNNING if not job.stopping else job.phase
            job = replace(job, steps_done=done, saved_steps=saved, phase=phase)
            if done == job.spec.steps_total:
                self.finished_at_s[name] = at_s
                self.stops_at_s.pop(name, None)
                return replace(
                    self._off(job, saved=True), phase=JobPhase.FINISHED, saved_steps=done
                )
        if name in self.stops_at_s and at_s >= self.stops_at_s[name]:
            del self.stops_at_s[name]
            return self._off(job, saved=True)
        return job

    def _off(self, job: JobView, *, saved: bool) -> JobView:
        if saved:
            self._moved(job, saves=1)
        steps = max(job.steps_done, job.saved_steps) if saved else job.saved_steps
        return replace(
            job,
            phase=JobPhase.MOVING if job.move_to and saved else JobPhase.WAITING,
            instance_ids=(),
            request=None,
            accelerator_indices=(),
            stopping=False,
            stop_asked_at_s=None,
            steps_done=steps,
            saved_steps=steps,
            placed_at_s=None,
        )

    def _move_prices(self, at_s: float) -> None:
        """At most one rise of a tenth in any span that two decisions and an end may take."""
        if not self.price_moves or at_s < self.last_price_at_s + 1500:
            return
        self.last_price_at_s = at_s
        factor = self.dice.uniform(0.8, 1.1)
        offers = tuple(
            replace(each, price_usd_per_hour=(each.price_usd_per_hour or 0.0) * factor)
            if each.capacity_type is CapacityType.SPOT
            else each
            for each in self.state.offers
        )
        self.state = replace(self.state, offers=offers)
        for box in self.boxes.values():
            if box.ended_at_s is None and box.instance.offer.capacity_type is CapacityType.SPOT:
                price = box.instance.price_usd_per_hour * factor
                box.instance = replace(box.instance, price_usd_per_hour=price)
                box.prices.append((at_s, price))
