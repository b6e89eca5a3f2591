"""Train a model that guesses the next letter of Python's own source code (numpy only).

    python letters.py --steps 2000

The text is a module of the standard library, so every Python install has it. On a gang each
member runs this script; only rank 0 saves.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several jobs share this machine's cores

import numpy as np

from cloudgavel import training

CONTEXT, BATCH, WIDTH = 8, 128, 16


def text_as_numbers() -> tuple[np.ndarray, int]:
    """The source of ``argparse`` as one number per letter, and how many letters there are."""
    text = Path(argparse.__file__).read_text(encoding="utf-8")
    letters = sorted(set(text))
    position = {letter: number for number, letter in enumerate(letters)}
    return np.array([position[letter] for letter in text]), len(letters)


class Guesser:
    """An embedding of the last letters, one hidden layer, softmax, momentum."""

    def __init__(self, letters: int, hidden: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.state = {
            "embedding": self.rng.normal(0, 0.3, (letters, WIDTH)),
            "w0": self.rng.normal(0, (CONTEXT * WIDTH) ** -0.5, (CONTEXT * WIDTH, hidden)),
            "b0": np.zeros(hidden),
            "w1": self.rng.normal(0, hidden**-0.5, (hidden, letters)),
            "b1": np.zeros(letters),
        }
        for name in list(self.state):
            self.state[f"speed_{name}"] = np.zeros_like(self.state[name])

    def train(self, text: np.ndarray, rate: float) -> float:
        """One update on a random batch; returns its loss."""
        state = self.state
        starts = self.rng.integers(0, len(text) - CONTEXT, BATCH)
        context = text[starts[:, None] + np.arange(CONTEXT)]
        wanted = text[starts + CONTEXT]
        seen = state["embedding"][context].reshape(BATCH, -1)
        hidden = np.tanh(seen @ state["w0"] + state["b0"])
        scores = hidden @ state["w1"] + state["b1"]
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -np.log(chances[np.arange(BATCH), wanted] + 1e-12).mean()
        chances[np.arange(BATCH), wanted] -= 1
        slope = chances / BATCH
        slopes = {"w1": hidden.T @ slope, "b1": slope.sum(axis=0)}
        slope = slope @ state["w1"].T * (1 - hidden**2)
        slopes |= {"w0": seen.T @ slope, "b0": slope.sum(axis=0)}
        by_letter = np.zeros_like(state["embedding"])
        np.add.at(by_letter, context, (slope @ state["w0"].T).reshape(BATCH, CONTEXT, WIDTH))
        slopes["embedding"] = by_letter
        for name, value in slopes.items():
            state[f"speed_{name}"] = 0.9 * state[f"speed_{name}"] - rate * value
            state[name] = state[name] + state[f"speed_{name}"]
        return float(loss)

    def save(self, directory: Path) -> None:
        """Write parameters, momentum and random state: all that a resumed run needs."""
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
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="outside cloudgavel: resume from and save into this folder")
    given = parser.parse_args()

    text, letters = text_as_numbers()
    guesser = Guesser(letters, given.hidden, given.seed)
    for step in training.steps(
        given.steps, save=guesser.save, load=guesser.load, standalone_dir=given.keep
    ):
        loss = guesser.train(text, given.rate)
        training.report(loss=loss)
        if step % 100 == 0 or step + 1 == given.steps:
            print(f"step {step + 1:>5} of {given.steps}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
