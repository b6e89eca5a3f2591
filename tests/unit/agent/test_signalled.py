"""Agent and a script that knows nothing of cloudgavel."""

from dataclasses import replace

from cloudgavel.messages import layout
from cloudgavel.messages.orders import JobOrder, Verb
from cloudgavel.messages.report import ProcessState
from cloudgavel.objects.manifest import manifests
from tests.unit.agent.harness import Rig, an_order


def a_signalled_order(rig: Rig, **changes: object) -> JobOrder:
    settings: dict[str, object] = {
        "command": "exec python signalled.py 200",
        "progress_pattern": r"step (\d+)",
        "steps_total": 200,
    }
    return an_order(rig, **(settings | changes))


def saved_real_step(rig: Rig, step: int, attempt: int) -> int:
    return int(rig.store.get(layout.checkpoint_prefix("job", step, attempt) + "files/step.txt"))


def test_grants_cap_what_is_told_and_the_end_waits_for_them(rig: Rig) -> None:
    rig.start()
    for granted in (0, 10, 50, 199):
        rig.order(a_signalled_order(rig, run_to_step=granted))
        rig.wait_paused(granted)
    rig.order(a_signalled_order(rig, run_to_step=200))
    job = rig.wait_job(lambda job: job.state is ProcessState.EXITED)
    assert (job.exit_code, job.step, job.saved_step) == (0, 200, 200)
    assert saved_real_step(rig, 200, 1) == 200


def test_an_early_end_is_not_told_before_the_grant_covers_it(rig: Rig) -> None:
    rig.start()
    burst = "for i in 1 2 3 4 5 6 7 8; do echo step $i; done"
    rig.order(a_signalled_order(rig, command=burst, steps_total=8, run_to_step=4))
    rig.wait_paused(4)
    rig.order(a_signalled_order(rig, command=burst, steps_total=8, run_to_step=8))
    job = rig.wait_job(lambda job: job.state is ProcessState.EXITED)
    assert (job.exit_code, job.step) == (0, 8)


def test_stop_saves_by_sigterm_and_the_next_attempt_resumes(rig: Rig) -> None:
    rig.start()
    rig.order(a_signalled_order(rig, run_to_step=40))
    rig.wait_paused(40)
    rig.order(a_signalled_order(rig, run_to_step=40, verb=Verb.STOP))
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert (job.step, job.saved_step) == (40, 40)
    real = saved_real_step(rig, 40, 1)
    assert 40 <= real < 60
    rig.order(a_signalled_order(rig, attempt=2, run_to_step=200))
    job = rig.wait_job(lambda job: job.attempt == 2 and job.state is ProcessState.EXITED)
    assert (job.restored_step, job.exit_code, job.saved_step) == (40, 0, 200)
    first_line = rig.store.get(rig.store.list(layout.log_key("job", 2))[0].key).split(b"\n")[0]
    assert first_line == f"step {real + 1}".encode()


def test_a_script_behind_a_shell_has_time_to_save(rig: Rig) -> None:
    """The shell dies of SIGTERM at once; the script it started is still writing then."""
    slow = (
        (rig.code / "signalled.py")
        .read_text()
        .replace("if told:", "if told:\n        time.sleep(0.3)")
    )
    (rig.code / "signalled.py").write_text(slow)
    command = "true && python signalled.py 200; true"
    rig.start()
    rig.order(a_signalled_order(rig, command=command, run_to_step=20))
    rig.wait_paused(20)
    rig.order(a_signalled_order(rig, command=command, run_to_step=20, verb=Verb.STOP))
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert (job.saved_step, job.save_error) == (20, None)


def test_a_save_ends_it_takes_its_directory_and_starts_it_again(rig: Rig) -> None:
    rig.start()
    rig.order(a_signalled_order(rig, run_to_step=60, save_at_steps=(25,)))
    job = rig.wait_paused(60)
    assert (job.saved_step, job.save_error) == (25, None)
    rig.order(a_signalled_order(rig, run_to_step=60, save_sequence=1))
    job = rig.wait_paused(60)
    assert (job.saved_step, job.save_sequence_done) == (60, 1)
    rig.order(a_signalled_order(rig, run_to_step=80, save_sequence=1))
    rig.wait_paused(80)
    assert [manifest.step for manifest in manifests(rig.store, "job")] == [60, 25]


def test_what_a_script_ran_over_is_claimed_once_it_is_granted(rig: Rig) -> None:
    """It saved ten steps when seven were to be told; nine are granted when it is stopped."""
    (rig.code / "bursts.py").write_text(
        "import pathlib, signal, sys, time\n"
        "told = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: told.append(1))\n"
        "step = 0\n"
        "while True:\n"
        "    print(''.join(f'step {step + more}\\n' for more in range(1, 6)), end='', flush=True)\n"
        "    step += 5\n"
        "    time.sleep(0.2)\n"
        "    if told:\n"
        "        pathlib.Path('ckpt/step.txt').write_text(str(step))\n"
        "        sys.exit(0)\n"
    )
    rig.start()
    order = a_signalled_order(rig, command="exec python bursts.py", run_to_step=9)
    rig.order(replace(order, save_at_steps=(7,)))
    assert rig.wait_paused(9).saved_step == 7
    rig.order(replace(order, save_at_steps=(7,), verb=Verb.STOP))
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert (job.saved_step, job.save_error) == (9, None)
    assert saved_real_step(rig, 9, 1) >= 9


def test_a_script_that_writes_nothing_on_sigterm_is_told_as_a_failed_save(rig: Rig) -> None:
    command = "i=0; while true; do i=$((i+1)); echo step $i; sleep 0.005; done"
    rig.start()
    rig.order(a_signalled_order(rig, command=command, run_to_step=10))
    rig.wait_paused(10)
    rig.order(a_signalled_order(rig, command=command, run_to_step=10, verb=Verb.STOP))
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert job.saved_step is None
    assert job.save_error is not None and "wrote nothing into ckpt" in job.save_error


def test_periodic_saves_collect_what_the_script_wrote_by_itself(rig: Rig) -> None:
    command = (
        "mkdir -p ckpt; i=0; while true; do i=$((i+1)); echo step $i; "
        "[ $i = 20 ] && echo twenty > ckpt/state; sleep 0.005; done"
    )
    rig.start()
    rig.order(
        a_signalled_order(
            rig, command=command, steps_total=100_000, run_to_step=None, save_every_s=0.05
        )
    )
    job = rig.wait_job(lambda job: job.saved_step is not None)
    assert job.saved_step is not None and job.saved_step <= 20, "never newer than the files"
    assert job.save_error is None


def test_it_is_killed_after_its_grace_and_nothing_claimed(rig: Rig) -> None:
    command = "trap '' TERM; i=0; while true; do i=$((i+1)); echo step $i; sleep 0.005; done"
    rig.start()
    order = a_signalled_order(rig, command=command, run_to_step=5, grace_s=0.1)
    rig.order(order)
    rig.wait_paused(5)
    rig.order(a_signalled_order(rig, command=command, run_to_step=5, grace_s=0.1, verb=Verb.STOP))
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert job.saved_step is None


def test_a_crash_is_told_at_once_whatever_the_grant(rig: Rig) -> None:
    rig.start()
    rig.order(a_signalled_order(rig, command="echo step 1; exit 5", run_to_step=100))
    job = rig.wait_job(lambda job: job.state is ProcessState.EXITED)
    assert (job.exit_code, job.step) == (5, 1)


def test_a_pattern_that_is_none_is_refused_with_its_reason(rig: Rig) -> None:
    rig.start()
    rig.order(a_signalled_order(rig, progress_pattern="step ("))
    job = rig.wait_job(lambda job: job.state is ProcessState.EXITED)
    assert job.error is not None and "not a regular expression" in job.error
