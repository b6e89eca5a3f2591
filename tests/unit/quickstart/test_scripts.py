"""The quick-start's jobs: the loss falls, and an interrupted run ends with the same bits."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cloudgavel.messages import layout
from cloudgavel.messages.orders import JobOrder, Verb
from cloudgavel.messages.report import ProcessState
from tests.unit.agent.harness import Rig, rigs

QUICKSTART = Path(__file__).parents[3] / "examples" / "quickstart"
STEPS = 160
SCRIPTS = {
    "spirals": f"spirals.py --steps {STEPS} --hidden 32",
    "letters": f"letters.py --steps {STEPS} --hidden 32",
    "ratings": f"ratings.py --steps {STEPS}",
    "clusters": f"clusters.py --steps {STEPS}",
}


def an_order(name: str, **changes: object) -> JobOrder:
    settings: dict[str, object] = {
        "job": name,
        "attempt": 1,
        "verb": Verb.RUN,
        "command": f"exec python {SCRIPTS[name]}",
        "workdir": str(QUICKSTART),
        "steps_total": STEPS,
        "progress_pattern": r"step (\d+) loss" if name == "clusters" else None,
    }
    return JobOrder(**(settings | changes))  # type: ignore[arg-type]


def final_arrays(rig: Rig, name: str, attempt: int) -> dict[str, np.ndarray]:
    prefix = layout.checkpoint_prefix(name, STEPS, attempt) + "files/"
    rig.store.get_file(prefix + "state.npz", rig.root / f"{name}-{attempt}.npz")
    with np.load(rig.root / f"{name}-{attempt}.npz") as saved:
        return {key: saved[key] for key in saved.files}


@pytest.mark.parametrize("name", SCRIPTS)
def test_interrupted_twice_it_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    with rigs(whole) as make_whole, rigs(broken) as make_broken:
        one, two = make_whole().start(), make_broken().start()
        one.order(an_order(name))
        two.order(an_order(name, run_to_step=40))
        two.wait_paused(40)
        two.order(an_order(name, run_to_step=40, verb=Verb.STOP))
        stopped = two.wait_job(lambda job: job.state is ProcessState.STOPPED)
        assert stopped.saved_step == 40
        # The second time it is lost without a warning, after a save some steps before.
        two.order(an_order(name, attempt=2, run_to_step=100, save_at_steps=(70,)))
        two.wait_job(lambda job: job.attempt == 2 and job.state is ProcessState.PAUSED)
        two.order(an_order(name, attempt=2, verb=Verb.STOP, save_before_stop=False))
        two.wait_job(lambda job: job.state is ProcessState.STOPPED)
        two.order(an_order(name, attempt=3))
        last = two.wait_job(lambda job: job.attempt == 3 and job.state is ProcessState.EXITED)
        assert (last.exit_code, last.restored_step, last.step) == (0, 70, STEPS)
        one.wait_job(lambda job: job.state is ProcessState.EXITED)
        expected, found = final_arrays(one, name, 1), final_arrays(two, name, 3)
    assert expected.keys() == found.keys()
    for key, value in expected.items():
        assert value.dtype == found[key].dtype
        assert value.tobytes() == found[key].tobytes(), key


@pytest.mark.parametrize("name", SCRIPTS)
def test_run_by_hand_the_loss_falls(name: str, tmp_path: Path) -> None:
    where = ["--checkpoint", str(tmp_path / "ckpt")] if name == "clusters" else []
    found = subprocess.run(
        [sys.executable, *SCRIPTS[name].split(), *where],
        cwd=QUICKSTART,
        capture_output=True,
        text=True,
        check=True,
    )
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", found.stdout)]
    assert losses[-1] < 0.75 * losses[0]
