"""Find the centres of a cloud of points by mini-batch k-means (numpy only).

    python clusters.py --steps 900

This script knows nothing of cloudgavel. It works there because it prints its step, writes its
state into a checkpoint directory when it gets SIGTERM, and resumes from that directory:
``progress_pattern`` and ``checkpoint: {path: ckpt}`` in jobs.yaml are all that is needed.
"""

import argparse
import json
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several jobs share this machine's cores

import numpy as np

POINTS, DIMENSIONS, CENTRES, BATCH = 20_000, 16, 24, 512

asked_to_end = False


def ask_to_end(_number: int, _frame: object) -> None:
    """SIGTERM: finish the step at hand, save, end."""
    global asked_to_end
    asked_to_end = True


def save(
    directory: Path, step: int, state: dict[str, np.ndarray], rng: np.random.Generator
) -> None:
    """Write the state so that a half-written one is never mistaken for it."""
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / "state.new.npz"
    generator = json.dumps(rng.bit_generator.state)
    np.savez(fresh, step=step, rng=np.array(generator), **state)
    os.replace(fresh, directory / "state.npz")


def main() -> None:
    """Train and print step and loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, default=Path("ckpt"))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, ask_to_end)

    data = np.random.default_rng(given.seed)
    middles = data.normal(0, 4, (CENTRES, DIMENSIONS))
    points = middles[data.integers(0, CENTRES, POINTS)] + data.normal(0, 1, (POINTS, DIMENSIONS))

    rng = np.random.default_rng(given.seed + 1)
    step = 0
    state = {"centres": points[rng.integers(0, POINTS, CENTRES)], "counts": np.ones(CENTRES)}
    saved_at = given.checkpoint / "state.npz"
    if saved_at.exists():
        with np.load(saved_at) as saved:
            step = int(saved["step"])
            state = {"centres": saved["centres"], "counts": saved["counts"]}
            rng.bit_generator.state = json.loads(str(saved["rng"]))
        print(f"resumed at step {step}", flush=True)

    while step < given.steps:
        batch = points[rng.integers(0, POINTS, BATCH)]
        distances = ((batch[:, None, :] - state["centres"][None]) ** 2).sum(axis=2)
        nearest = distances.argmin(axis=1)
        for centre in np.unique(nearest):
            mine = batch[nearest == centre]
            state["counts"][centre] += len(mine)
            pull = len(mine) / state["counts"][centre]
            state["centres"][centre] += pull * (mine.mean(axis=0) - state["centres"][centre])
        step += 1
        loss = distances[np.arange(BATCH), nearest].mean()
        print(f"step {step} loss {loss:.4f}", flush=True)
        if asked_to_end:
            save(given.checkpoint, step, state, rng)
            sys.exit(143)
    save(given.checkpoint, step, state, rng)


if __name__ == "__main__":
    main()
