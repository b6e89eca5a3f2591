"""Train a small neural network to tell three spirals apart (numpy only).

    python spirals.py --steps 1500 --hidden 64

Under cloudgavel the loop below resumes, reports, saves and stops by itself; run alone it counts.
"""

import argparse
import json
import os
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several jobs share this machine's cores

import numpy as np

from cloudgavel import training

CLASSES, POINTS_PER_CLASS, BATCH = 3, 2000, 256


def spirals(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points in the plane on three noisy spiral arms, and which arm each is on."""
    points, arms = [], []
    for arm in range(CLASSES):
        radius = np.linspace(0.05, 1.0, POINTS_PER_CLASS)
        angle = radius * 6.0 + arm * 2 * np.pi / CLASSES
        angle = angle + rng.normal(0.0, 0.15, POINTS_PER_CLASS)
        points.append(np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1))
        arms.append(np.full(POINTS_PER_CLASS, arm))
    return np.concatenate(points), np.concatenate(arms)


class Network:
    """Two hidden layers, softmax, Adam: every array that training changes is in ``state``."""

    def __init__(self, hidden: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        sizes = [2, hidden, hidden, CLASSES]
        self.state: dict[str, np.ndarray] = {"updates": np.zeros(())}
        for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
            self.state[f"w{layer}"] = self.rng.normal(0, (2 / inputs) ** 0.5, (inputs, outputs))
            self.state[f"b{layer}"] = np.zeros(outputs)
        for name in [name for name in self.state if name[0] in "wb"]:
            self.state[f"mean_{name}"] = np.zeros_like(self.state[name])
            self.state[f"square_{name}"] = np.zeros_like(self.state[name])

    def train(self, points: np.ndarray, arms: np.ndarray, rate: float) -> float:
        """One update on a random batch; returns its loss."""
        chosen = self.rng.integers(0, len(points), BATCH)
        x, wanted = points[chosen], arms[chosen]
        state = self.state
        first = np.maximum(x @ state["w0"] + state["b0"], 0)
        second = np.maximum(first @ state["w1"] + state["b1"], 0)
        scores = second @ state["w2"] + state["b2"]
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -np.log(chances[np.arange(BATCH), wanted] + 1e-12).mean()
        chances[np.arange(BATCH), wanted] -= 1
        slope = chances / BATCH
        slopes = {"w2": second.T @ slope, "b2": slope.sum(axis=0)}
        slope = slope @ state["w2"].T * (second > 0)
        slopes |= {"w1": first.T @ slope, "b1": slope.sum(axis=0)}
        slope = slope @ state["w1"].T * (first > 0)
        slopes |= {"w0": x.T @ slope, "b0": slope.sum(axis=0)}
        state["updates"] = state["updates"] + 1
        for name, value in slopes.items():
            state[f"mean_{name}"] = 0.9 * state[f"mean_{name}"] + 0.1 * value
            state[f"square_{name}"] = 0.999 * state[f"square_{name}"] + 0.001 * value**2
            mean = state[f"mean_{name}"] / (1 - 0.9 ** state["updates"])
            square = state[f"square_{name}"] / (1 - 0.999 ** state["updates"])
            state[name] = state[name] - rate * mean / (np.sqrt(square) + 1e-8)
        return float(loss)

    def save(self, directory: Path) -> None:
        """Write parameters, optimiser and random state: all that a resumed run needs."""
        np.savez(directory / "state.npz", **self.state)
        (directory / "rng.json").write_text(json.dumps(self.rng.bit_generator.state))

    def load(self, directory: Path) -> None:
        """Read back what ``save`` wrote."""
        with np.load(directory / "state.npz") as saved:
            self.state = {name: saved[name] for name in saved.files}
        self.rng.bit_generator.state = json.loads((directory / "rng.json").read_text())


def main() -> None:
    """Train and print the loss as it falls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="outside cloudgavel: resume from and save into this folder")
    given = parser.parse_args()

    points, arms = spirals(np.random.default_rng(given.seed))
    network = Network(given.hidden, given.seed)
    for step in training.steps(
        given.steps, save=network.save, load=network.load, standalone_dir=given.keep
    ):
        loss = network.train(points, arms, given.rate)
        training.report(loss=loss)
        if step % 100 == 0 or step + 1 == given.steps:
            print(f"step {step + 1:>5} of {given.steps}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
