"""Rehearsals with real agents and real processes, against the story that was simulated."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from cloudgavel.errors import CloudgavelError
from cloudgavel.messages.codec import decode_lease
from cloudgavel.messages.layout import lease_key
from cloudgavel.messages.orders import RehearsalTerms, Verb
from cloudgavel.messages.report import ProcessState
from cloudgavel.objects.manifest import newest_valid
from cloudgavel.objects.open import open_store
from cloudgavel.providers.base import EndReason, MachineState
from cloudgavel.providers.local.rehearsing import AgentDidNotStart
from cloudgavel.providers.local.world import RehearsalWorld
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.world import SimulatedWorld
from tests.contract.harness import (
    AGENT,
    RUN_ID,
    START_AT_S,
    RealClock,
    ScriptedMarket,
    a_request,
    an_offer,
)
from tests.unit.providers.stories import a_job, job_of, lead, orders, snapshot

AWS = an_offer()
TPU = an_offer(provider="gcp", zone="us-central1-b", accelerator="tpu-v3-8", instance_type="v3-8")

SCRIPT = """
import json, pathlib, sys
from cloudgavel import training

state = {"sum": 0, "steps": []}

def save(directory):
    if BROKEN_SAVE:
        raise OSError("no space left")
    (directory / "state.json").write_text(json.dumps(state))

def load(directory):
    state.update(json.loads((directory / "state.json").read_text()))

for step in training.steps(save=save, load=load):
    if step == FAIL_AT:
        print("it broke here")
        sys.exit(3)
    if step == HANG_AT:
        import time
        time.sleep(1000)
    state["sum"] += step
    state["steps"].append(step)
    training.report(loss=1.0 / (1 + step))
"""


class Rehearsal:
    """A rehearsal in a directory, which can be opened again, and the same story simulated."""

    def __init__(self, directory: Path, **market) -> None:
        self.directory = directory
        self.market = ScriptedMarket(**market)
        self.world = self.open()

    def open(self, **options) -> RehearsalWorld:
        return RehearsalWorld.open(
            self.directory / "rehearsal",
            **{
                "run_id": RUN_ID,
                "store_url": (self.directory / "store").as_uri(),
                "offers": [AWS, TPU],
                "market": self.market,
                "start_at_s": START_AT_S,
                "agent_command": AGENT,
                "clock": RealClock(),
                **options,
            },
        )

    def simulated(self) -> SimulatedWorld:
        cloud = SimulatedCloud(offers=[AWS, TPU], market=self.market, now_s=START_AT_S)
        return SimulatedWorld(cloud)

    def job(self, name="job", *, fail_at=-1, hang_at=-1, broken_save=False, **more):
        workdir = self.directory / f"code-{name}"
        workdir.mkdir(exist_ok=True)
        text = textwrap.dedent(SCRIPT)
        for word, value in (
            ("FAIL_AT", fail_at),
            ("HANG_AT", hang_at),
            ("BROKEN_SAVE", broken_save),
        ):
            text = text.replace(word, repr(value))
        (workdir / "train.py").write_text(text)
        return a_job(name, workdir=str(workdir), command="python train.py", **more)

    def saved_steps(self, job="job") -> list[int]:
        store = open_store((self.directory / "store").as_uri())
        manifest = newest_valid(store, job)
        if manifest is None:
            return []
        entry = next(entry for entry in manifest.files if entry.path == "state.json")
        return json.loads(store.get(manifest.file_key(entry)))["steps"]


@pytest.fixture
def make_rehearsal(tmp_path):
    made = []

    def make(name="one", **market):
        (tmp_path / name).mkdir()
        made.append(Rehearsal(tmp_path / name, **market))
        return made[-1]

    yield make
    for rehearsal in made:
        world = rehearsal.world
        for listed in world.list_instances(RUN_ID):
            world.terminate(listed.instance_id)
        assert world.processes() == {}


def launch(world, offer=AWS, token="token-1"):
    return world.provider.launch(a_request(offer, token=token)).instance_id


def a_whole_story(world, rehearsal):
    """A notice and an interruption, a move, a stop, a finish: what each observer sees of it."""
    seen = []
    one, two = launch(world), launch(world, TPU, "token-2")
    world.channel.send(orders(one, 1, rehearsal.job("a", total=400), rehearsal.job("b", total=300)))
    world.channel.send(orders(two, 1, rehearsal.job("c", total=900)))
    seen += lead(world, [START_AT_S + at for at in (60.0, 75.0, 130.0, 180.0)])
    world.channel.send(
        orders(one, 2, rehearsal.job("a", total=400), rehearsal.job("b", total=300, verb=Verb.STOP))
    )
    seen += lead(world, [world.next_event_at_s(), START_AT_S + 190.0])
    world.channel.send(
        orders(two, 2, rehearsal.job("c", total=900), rehearsal.job("b", total=300, attempt=2))
    )
    while (at_s := world.next_event_at_s()) is not None and at_s < START_AT_S + 700.0:
        seen += lead(world, [at_s])
    for listed in world.provider.list_instances(RUN_ID):
        world.provider.terminate(listed.instance_id)
    return [*seen, *lead(world, [START_AT_S + 800.0])]


def test_the_story_is_the_simulated_one_and_the_work_is_real(make_rehearsal):
    lives = {(AWS.offer_id, 0): 250.0}
    rehearsal = make_rehearsal(lives_s=lives)
    expected = a_whole_story(rehearsal.simulated(), rehearsal)
    rehearsed = a_whole_story(rehearsal.world, rehearsal)
    assert rehearsed == expected
    # b moved: every step exactly once, in order, over two attempts on two machines.
    assert rehearsal.saved_steps("b") == list(range(300))
    # a was saved on the notice, and its later steps are lost with the machine.
    steps = rehearsal.saved_steps("a")
    assert steps == list(range(len(steps)))
    assert 0 < len(steps) < 400
    assert rehearsal.world.processes() == {}


def test_twice_the_same_story_whatever_the_machine_does(make_rehearsal):
    lives = {(TPU.offer_id, 0): 400.0}
    first, second = make_rehearsal("one", lives_s=lives), make_rehearsal("two", lives_s=lives)
    assert a_whole_story(first.world, first) == a_whole_story(second.world, second)


def test_reports_carry_loss_and_pid_of_the_real_process(make_rehearsal):
    rehearsal = make_rehearsal()
    one = launch(rehearsal.world)
    rehearsal.world.send(orders(one, 1, rehearsal.job(total=1_000)))
    rehearsal.world.advance_to(START_AT_S + 80.0)
    found = job_of(rehearsal.world, one)
    assert (found.step, found.state) == (20, ProcessState.RUNNING)
    assert found.loss == pytest.approx(1.0 / 20)
    assert rehearsal.world.reports()[one].agent_pid in rehearsal.world.processes()[one]


def test_a_job_that_fails_fails_at_the_virtual_time_of_its_step(make_rehearsal):
    rehearsal = make_rehearsal()
    world = rehearsal.world
    one = launch(world)
    world.send(orders(one, 1, rehearsal.job(total=1_000, fail_at=50), rehearsal.job("other")))
    world.advance_to(START_AT_S + 95.0)
    assert job_of(world, one).state is ProcessState.RUNNING
    assert job_of(world, one).step == 50
    world.advance_to(START_AT_S + 120.0)
    found = job_of(world, one)
    assert (found.state, found.step, found.exit_code) == (ProcessState.EXITED, 50, 3)
    assert "it broke here" in found.last_lines
    assert job_of(world, one, "other").step == 100


def test_a_save_that_fails_is_told_and_the_job_is_not_stopped(make_rehearsal):
    rehearsal = make_rehearsal()
    world = rehearsal.world
    one = launch(world)
    job = rehearsal.job(total=1_000, broken_save=True)
    world.send(orders(one, 1, job))
    world.advance_to(START_AT_S + 80.0)
    stop = rehearsal.job(total=1_000, broken_save=True, verb=Verb.STOP)
    world.send(orders(one, 2, stop))
    world.advance_to(START_AT_S + 90.0)
    found = job_of(world, one)
    assert found.saved_step is None
    assert "no space left" in found.save_error
    assert found.state is ProcessState.SAVING
    world.send(orders(one, 3, job))
    world.advance_to(START_AT_S + 100.0)
    assert (job_of(world, one).state, job_of(world, one).step) == (ProcessState.RUNNING, 40)


def test_a_job_that_hangs_is_declared_failed(make_rehearsal):
    rehearsal = make_rehearsal()
    world = rehearsal.world = rehearsal.open(watchdog_s=2.0)
    one = launch(world)
    world.send(orders(one, 1, rehearsal.job(total=1_000, hang_at=30)))
    world.advance_to(START_AT_S + 85.0)
    assert job_of(world, one).state is ProcessState.RUNNING
    world.advance_to(START_AT_S + 100.0)
    found = job_of(world, one)
    assert (found.state, found.step) == (ProcessState.EXITED, 30)
    assert "no progress for 2 s" in found.error
    assert world.list_instances(RUN_ID)[0].state is MachineState.RUNNING


def test_an_agent_that_dies_is_a_machine_that_vanished(make_rehearsal):
    rehearsal = make_rehearsal()
    world = rehearsal.world
    one = launch(world)
    world.send(orders(one, 1, rehearsal.job(total=10_000)))
    world.advance_to(START_AT_S + 200.0)
    agent_pid = world.reports()[one].agent_pid
    os.kill(agent_pid, signal.SIGKILL)
    # Until it can be waited for, a killed process is still ending: not yet gone for anybody.
    os.waitid(os.P_PID, agent_pid, os.WEXITED | os.WNOWAIT)
    listed = world.list_instances(RUN_ID)[0]
    assert (listed.state, listed.end_reason) == (MachineState.TERMINATED, EndReason.VANISHED)
    assert listed.ended_at_s == START_AT_S + 200.0
    assert world.processes() == {}
    two = launch(world, TPU, "token-2")
    world.send(orders(two, 1, rehearsal.job(total=10_000, attempt=2)))
    world.advance_to(START_AT_S + 300.0)
    assert job_of(world, two, attempt=2).restored_step == 200


def test_an_agent_that_cannot_start_is_an_error_with_its_words(make_rehearsal):
    rehearsal = make_rehearsal()
    world = rehearsal.world = rehearsal.open(
        agent_command=[sys.executable, "-c", "raise SystemExit('no such agent')"]
    )
    launch(world)
    with pytest.raises(AgentDidNotStart) as caught:
        world.advance_to(START_AT_S + 100.0)
    assert ("it said", "no such agent") in caught.value.facts
    world = rehearsal.world = rehearsal.open()
    assert world.now_s() == START_AT_S + 100.0


def test_a_damaged_checkpoint_is_told_as_the_older_one_it_fell_back_to(make_rehearsal):
    rehearsal = make_rehearsal()
    world = rehearsal.world
    one = launch(world)
    world.send(orders(one, 1, rehearsal.job(total=10_000)))
    world.advance_to(START_AT_S + 290.0)
    world.terminate(one)
    store = open_store((rehearsal.directory / "store").as_uri())
    newest = newest_valid(store, "job")
    assert newest is not None
    assert newest.step == 400
    store.put(newest.file_key(newest.files[0]), b"rubbish")
    two = launch(world, TPU, "token-2")
    world.send(orders(two, 1, rehearsal.job(total=10_000, attempt=2)))
    world.advance_to(START_AT_S + 365.0)
    assert job_of(world, two, attempt=2).restored_step == 200


PLAIN_SCRIPT = """
import os, pathlib, signal, sys, time

directory = pathlib.Path(os.environ["CLOUDGAVEL_CHECKPOINT_DIR"])
kept = directory / "step"
step = int(kept.read_text()) if kept.exists() else 0

def save_and_end(number, frame):
    kept.write_text(str(step))
    sys.exit(0)

signal.signal(signal.SIGTERM, save_and_end)
while step < int(os.environ["CLOUDGAVEL_TOTAL_STEPS"]):
    step += 1
    print("step", step, flush=True)
    time.sleep(0.002)
"""


def test_a_script_that_knows_nothing_of_us_tells_the_same_story(make_rehearsal):
    rehearsal = make_rehearsal()

    def job(**more):
        workdir = rehearsal.directory / "plain"
        workdir.mkdir(exist_ok=True)
        (workdir / "train.py").write_text(PLAIN_SCRIPT)
        return a_job(
            total=200,
            workdir=str(workdir),
            command="python train.py",
            progress_pattern=r"step (\d+)",
            **more,
        )

    def story(world):
        one, two = launch(world), launch(world, TPU, "token-2")
        world.channel.send(orders(one, 1, job()))
        seen = lead(world, [START_AT_S + at for at in (60.0, 90.0)])
        world.channel.send(orders(one, 2, job(verb=Verb.STOP)))
        seen += lead(world, [world.next_event_at_s()])
        world.channel.send(orders(two, 1, job(attempt=2)))
        seen += lead(world, [world.next_event_at_s(), START_AT_S + 300.0])
        return seen

    expected = story(rehearsal.simulated())
    assert story(rehearsal.world) == expected
    assert expected[-1][3][1].jobs[0].state is ProcessState.EXITED


def test_a_gang_runs_on_all_its_machines_and_dies_with_any(make_rehearsal):
    rehearsal = make_rehearsal(lives_s={(TPU.offer_id, 0): 300.0})

    def story(world):
        one, two = launch(world), launch(world, TPU, "token-2")
        for rank, member in enumerate((one, two)):
            job = rehearsal.job(total=1_000, rank=rank, world_size=2, peers=(one, two))
            world.channel.send(orders(member, 1, job))
        seen = lead(world, [START_AT_S + at for at in (60.0, 100.0, 200.0, 310.0)])
        world.channel.send(orders(one, 2, rehearsal.job(total=1_000, attempt=2)))
        return seen + lead(world, [START_AT_S + 350.0])

    expected = story(rehearsal.simulated())
    assert story(rehearsal.world) == expected
    assert "of its gang is gone" in expected[3][3][0].jobs[0].error
    assert expected[4][3][0].jobs[0].restored_step == 400


def test_a_machine_that_boots_at_once_is_served_too(make_rehearsal):
    rehearsal = make_rehearsal(boot_delay_s=0.0)
    world = rehearsal.world
    one = launch(world)
    world.send(orders(one, 1, rehearsal.job(total=1_000)))
    assert world.list_instances(RUN_ID)[0].state is MachineState.RUNNING
    world.advance_to(START_AT_S + 20.0)
    assert job_of(world, one).step == 20


def test_agents_and_caller_get_a_sign_of_life_while_a_rehearsal_waits(make_rehearsal):
    rehearsal = make_rehearsal()
    called = []
    world = rehearsal.world = rehearsal.open(while_waiting=lambda: called.append(world.now_s()))
    launch(world)
    world.advance_to(START_AT_S + 100.0)
    assert called
    store = open_store((rehearsal.directory / "store").as_uri())
    assert decode_lease(store.get(lease_key())) == pytest.approx(time.time(), abs=60.0)


def test_the_directory_of_another_run_is_not_taken(make_rehearsal):
    rehearsal = make_rehearsal()
    with pytest.raises(CloudgavelError, match="another run"):
        rehearsal.open(run_id="not-this-one")
    state = rehearsal.directory / "rehearsal" / "rehearsal.json"
    assert state.stat().st_mode & 0o077 == 0
    whole = state.read_text()
    state.write_text(whole[: len(whole) // 2])
    with pytest.raises(CloudgavelError, match="cannot be read"):
        rehearsal.open()


CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.unit.providers.test_rehearsal import Rehearsal, launch
from tests.unit.providers.stories import orders
from tests.contract.harness import START_AT_S
rehearsal = Rehearsal(Path({directory!r}))
world = rehearsal.world
one = launch(world)
world.send(orders(one, 1, rehearsal.job(total=100_000)))
print("begun", flush=True)
for tick in range(1, 100_000):
    world.advance_to(START_AT_S + 60.0 + 7.0 * tick)
    print(world.now_s(), flush=True)
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.15, 0.4, 0.9])
def test_a_killed_controller_finds_its_agents_again_and_the_story_goes_on(tmp_path, delay_s):
    root = str(Path(__file__).parents[3])
    text = CONTROLLER.format(root=root, directory=str(tmp_path))
    controller = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, cwd=root)
    assert controller.stdout is not None
    controller.stdout.readline()
    time.sleep(delay_s)  # any moment will do: which one is the point of the test
    controller.kill()
    controller.wait()
    controller.stdout.close()
    rehearsal = Rehearsal(tmp_path)
    world = rehearsal.world
    (listed,) = world.list_instances(RUN_ID)
    one = listed.instance_id
    before = {pid for pids in world.processes().values() for pid in pids}
    expected = rehearsal.simulated()
    launch(expected)
    expected.channel.send(orders(one, 1, rehearsal.job(total=100_000)))
    expected.advance_to(world.now_s())
    assert snapshot(world) == snapshot(expected)
    later_s = world.now_s() + 200.0
    world.advance_to(later_s)
    expected.advance_to(later_s)
    assert snapshot(world) == snapshot(expected)
    if before:
        assert before <= {pid for pids in world.processes().values() for pid in pids}
    assert len(world.processes()[one]) <= 4
    world.terminate(one)
    assert world.processes() == {}


def test_six_agents_take_a_grant_within_a_blink(make_rehearsal):
    rehearsal = make_rehearsal()
    world = rehearsal.world
    terms = RehearsalTerms(steps_per_s=1.0, restore_s=1.0, save_s=1.0, save_every_s=1e6)
    for number in range(6):
        instance_id = launch(world, token=f"token-{number}")
        job = rehearsal.job(f"job-{number}", total=100_000, terms=terms)
        world.send(orders(instance_id, 1, job))
    world.advance_to(START_AT_S + 100.0)
    took_s = []
    for tick in range(1, 21):
        began_s = time.perf_counter()
        world.advance_to(START_AT_S + 100.0 + tick)
        took_s.append(time.perf_counter() - began_s)
    print("grant round trip of six agents, median s:", sorted(took_s)[10])
    assert sorted(took_s)[10] < 1.0
