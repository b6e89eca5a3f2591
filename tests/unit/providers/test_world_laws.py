"""Laws of the simulated world under random lives, orders and ways of moving time."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.messages.orders import RehearsalTerms, Verb
from cloudgavel.messages.report import ProcessState
from cloudgavel.providers.base import EndReason, MachineState
from cloudgavel.providers.failures import LaunchFailed
from cloudgavel.providers.simulated.attempt import Happening
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.habits import CloudHabits
from cloudgavel.providers.simulated.world import SimulatedWorld
from tests.contract.harness import RUN_ID, START_AT_S, ScriptedMarket, a_request, an_offer
from tests.unit.providers.stories import a_job, orders, snapshot

OFFERS = (
    an_offer(),
    an_offer(provider="gcp", zone="us-central1-a"),
    an_offer(provider="gcp", zone="us-central1-b", accelerator="tpu-v3-8", instance_type="v3-8"),
)
TOTAL = 500

terms = st.builds(
    RehearsalTerms,
    steps_per_s=st.sampled_from([0.05, 0.7, 1.0, 3.3]),
    restore_s=st.sampled_from([0.0, 7.0, 30.0]),
    save_s=st.sampled_from([0.0, 2.0, 40.0]),
    save_every_s=st.sampled_from([10.0, 33.3, 100.0, float("inf")]),
)
markets = st.builds(
    lambda lives, boot_s, changes: ScriptedMarket(
        lives_s={
            (offer.offer_id, ordinal): life
            for (offer, ordinal), life in zip(
                ((offer, n) for n in range(4) for offer in OFFERS), lives, strict=False
            )
            if life is not None
        },
        prices={OFFERS[0].offer_id: [(START_AT_S + at, 2.0 + at) for at in sorted(set(changes))]},
        boot_delay_s=boot_s,
    ),
    st.lists(st.none() | st.floats(0.0, 900.0), min_size=6, max_size=12),
    st.sampled_from([0.0, 20.0, 60.0]),
    st.lists(st.floats(1.0, 900.0), max_size=3),
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.floats(0.0, 200.0)),
        st.tuples(st.just("event"), st.none()),
        st.tuples(st.just("launch"), st.integers(0, 2)),
        st.tuples(st.just("terminate"), st.integers(0, 3)),
        st.tuples(st.just("run"), st.integers(0, 3)),
        st.tuples(st.just("gang"), st.integers(0, 3)),
        st.tuples(st.just("save"), st.integers(0, 3)),
        st.tuples(st.just("stop"), st.integers(0, 3)),
        st.tuples(st.just("drop"), st.integers(0, 3)),
        st.tuples(st.just("power_off"), st.integers(0, 3)),
    ),
    min_size=3,
    max_size=25,
)


class Player:
    """Plays actions on a world; the same actions twice are the same play."""

    def __init__(self, market: ScriptedMarket, job_terms: RehearsalTerms) -> None:
        self.market, self.terms = market, job_terms
        self.habits = CloudHabits(list_lag_s=5.0)
        cloud = SimulatedCloud(offers=OFFERS, market=market, now_s=START_AT_S, habits=self.habits)
        self.world = SimulatedWorld(cloud)
        self.sequence = self.attempt = 0
        self.orders: dict[str, tuple[Any, ...]] = {}
        self.ordered_at_s: dict[int, float] = {}

    def play(self, action: tuple[str, Any]) -> None:
        verb, value = action
        world = self.world
        if verb == "wait":
            world.advance_to(world.now_s() + value)
        elif verb == "event":
            at_s = world.next_event_at_s()
            if at_s is not None:
                world.advance_to(at_s)
        elif verb == "launch":
            self.sequence += 1
            try:
                world.provider.launch(a_request(OFFERS[value], token=f"token-{self.sequence}"))
            except LaunchFailed:
                return
        else:
            self._on_instance(verb, value)

    def _on_instance(self, verb: str, number: int) -> None:
        ids = list(self.world.provider.instance_ids())
        if number >= len(ids):
            return
        one = ids[number]
        if verb == "terminate":
            self.world.provider.terminate(one)
        elif verb == "run":
            self.attempt += 1
            self._order(one, a_job(attempt=self.attempt, total=TOTAL, terms=self.terms))
        elif verb == "gang" and number + 1 < len(ids):
            self.attempt += 1
            peers = (one, ids[number + 1])
            for rank, member in enumerate(peers):
                job = a_job(
                    attempt=self.attempt, total=TOTAL, terms=self.terms,
                    rank=rank, world_size=2, peers=peers,
                )  # fmt: skip
                self._order(member, job)
        elif verb == "drop":
            self._order(one)
        else:
            self._change(one, verb)

    def _change(self, one: str, verb: str) -> None:
        jobs = self.orders.get(one, ())
        if verb == "save":
            jobs = tuple(replace(job, save_sequence=job.save_sequence + 1) for job in jobs)
        elif verb == "stop":
            jobs = tuple(replace(job, verb=Verb.STOP) for job in jobs)
        self._order(one, *jobs, power_off=verb == "power_off")

    def _order(self, one: str, *jobs: Any, power_off: bool = False) -> None:
        self.sequence += 1
        self.orders[one] = jobs
        for job in jobs:
            self.ordered_at_s.setdefault(job.attempt, self.world.now_s())
        self.world.channel.send(orders(one, self.sequence, *jobs, power_off=power_off))

    def reopen(self) -> None:
        saved = json.loads(json.dumps(self.world.to_json()))
        self.world = SimulatedWorld.from_json(
            saved, offers=OFFERS, market=self.market, habits=self.habits
        )


@settings(max_examples=120, deadline=None)
@given(markets, terms, actions)
def test_saving_and_resuming_at_any_moment_changes_nothing(market, job_terms, played):
    plain, reopened = Player(market, job_terms), Player(market, job_terms)
    for action in played:
        plain.play(action)
        reopened.reopen()
        reopened.play(action)
        assert snapshot(plain.world) == snapshot(reopened.world)


@settings(max_examples=80, deadline=None)
@given(markets, terms, actions, actions)
def test_a_copy_goes_on_alike_and_does_not_disturb(market, job_terms, played, disturbing):
    plain, copied = Player(market, job_terms), Player(market, job_terms)
    for action in played:
        plain.play(action)
        original = copied.world
        before = snapshot(original), original.to_json()
        trial = Player(market, job_terms)
        trial.world = original.copy()
        trial.sequence, trial.attempt = copied.sequence, copied.attempt
        for other in disturbing[:4]:
            trial.play(other)
        assert (snapshot(original), original.to_json()) == before
        copied.world = original.copy()
        copied.play(action)
        assert snapshot(plain.world) == snapshot(copied.world)


@settings(max_examples=120, deadline=None)
@given(markets, terms, actions, st.lists(st.floats(0.0, 1.0), max_size=4))
def test_how_often_anybody_looks_changes_nothing(market, job_terms, played, looks):
    plain, watched = Player(market, job_terms), Player(market, job_terms)
    for action in played:
        began_s = watched.world.now_s()
        plain.play(action)
        for share in sorted(looks):
            watched.world.advance_to(began_s + share * (plain.world.now_s() - began_s))
            snapshot(watched.world)
        if action[0] in ("wait", "event"):
            watched.world.advance_to(plain.world.now_s())
        else:
            watched.play(action)
        assert snapshot(plain.world) == snapshot(watched.world)


@settings(max_examples=120, deadline=None)
@given(markets, terms, actions)
def test_steps_are_bounded_by_rate_and_time_and_saves_by_steps(market, job_terms, played):
    player = Player(market, job_terms)
    before: dict[tuple[str, int], tuple[float, int]] = {}
    for action in played:
        player.play(action)
        now_s = player.world.now_s()
        listed = {item.instance_id: item for item in player.world.provider.list_instances(RUN_ID)}
        for instance_id, report in player.world.channel.reports().items():
            assert report.heartbeat_at_s <= now_s
            state = listed.get(instance_id)
            if state is not None and state.ended_at_s is not None:
                assert report.heartbeat_at_s <= state.ended_at_s
            for job in report.jobs:
                assert job.saved_step is None or job.saved_step <= job.step <= TOTAL
                ordered_s = report.heartbeat_at_s - player.ordered_at_s[job.attempt]
                steps = job.step - job.restored_step
                assert 0 <= steps <= ordered_s * job_terms.steps_per_s + 1e-5
                at_s, step = before.get((instance_id, job.attempt), (0.0, 0))
                assert step <= job.step
                assert at_s <= report.heartbeat_at_s
                before[instance_id, job.attempt] = (report.heartbeat_at_s, job.step)
                if job.state is ProcessState.EXITED:
                    assert (job.exit_code, job.step) == (0, TOTAL)


@settings(max_examples=200, deadline=None)
@given(markets, terms, actions)
def test_attempts_start_from_the_newest_checkpoint_and_only_the_newest_commits(
    market, job_terms, played
):
    player = Player(market, job_terms)
    player.world.channel.record_events()
    for action in played:
        player.play(action)
    player.world.advance_to(player.world.now_s() + 2_000.0)
    newest_step = newest_attempt = 0
    over = set()
    for event in player.world.channel.take_events():
        assert event.attempt not in over
        if event.happening is Happening.STARTED:
            assert event.step == newest_step
            newest_attempt = max(newest_attempt, event.attempt)
        elif event.happening is Happening.COMMITTED:
            assert event.attempt == newest_attempt
            assert event.step >= newest_step
            newest_step = event.step
        elif event.happening in (Happening.EXITED, Happening.STOPPED, Happening.LOST):
            over.add(event.attempt)
    assert newest_step == player.world.channel.checkpoint_step("job")


@settings(max_examples=120, deadline=None)
@given(markets, terms, actions, st.floats(0.01, 0.99))
def test_nothing_observable_happens_before_the_next_event(market, job_terms, played, share):
    player = Player(market, job_terms)
    for action in played:
        player.play(action)
    world = player.world
    for _ in range(60):
        at_s = world.next_event_at_s()
        if at_s is None:
            return
        assert at_s > world.now_s()
        before = _observable(world)
        world.advance_to(world.now_s() + share * (at_s - world.now_s()))
        assert _observable(world) == before
        world.advance_to(at_s)


def _observable(world: SimulatedWorld) -> tuple[object, ...]:
    reports = world.channel.reports()
    return (
        tuple(
            (i, world.provider.machine_state(i), world.provider.end_reason(i))
            for i in world.provider.instance_ids()
        ),
        tuple(
            (instance_id, job.attempt, job.exit_code, job.save_sequence_done, job.error)
            for instance_id, report in reports.items()
            for job in report.jobs
        ),
        tuple(reports[i].notice for i in reports),
        tuple(offer.price_usd_per_hour for offer in world.provider.offers())
        if any(
            world.provider.machine_state(i) is not MachineState.TERMINATED
            and world.provider.offer_of(i) == OFFERS[0]
            for i in world.provider.instance_ids()
        )
        else (),
    )


@settings(max_examples=60, deadline=None)
@given(markets, terms, actions)
def test_every_end_is_final_and_has_its_reason(market, job_terms, played):
    player = Player(market, job_terms)
    ended: dict[str, object] = {}
    for action in played:
        player.play(action)
        for listed in player.world.provider.list_instances(RUN_ID):
            if listed.instance_id in ended:
                assert listed == ended[listed.instance_id]
            if listed.state is MachineState.TERMINATED:
                assert listed.end_reason in (EndReason.REQUESTED, EndReason.INTERRUPTED)
                assert listed.ended_at_s is not None
                ended[listed.instance_id] = listed
