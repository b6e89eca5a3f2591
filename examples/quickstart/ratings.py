"""Complete a table of ratings by matrix factorisation (numpy only).

    python ratings.py --steps 1200

``--device`` shows how one job has another command on a TPU; here both compute the same.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several jobs share this machine's cores

import numpy as np

from cloudgavel import training

PEOPLE, ITEMS, RANK, KNOWN, BATCH = 800, 600, 12, 60_000, 2048


def known_ratings(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who rated what, and how: a low-rank table plus noise, of which a part is known."""
    taste = rng.normal(0, 1, (PEOPLE, RANK // 2))
    nature = rng.normal(0, 1, (ITEMS, RANK // 2))
    who, what = rng.integers(0, PEOPLE, KNOWN), rng.integers(0, ITEMS, KNOWN)
    ratings = (taste[who] * nature[what]).sum(axis=1) + rng.normal(0, 0.3, KNOWN)
    return who, what, ratings


class Factors:
    """One vector per person and per item, fitted by stochastic gradient descent."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.people = self.rng.normal(0, 0.3, (PEOPLE, RANK))
        self.items = self.rng.normal(0, 0.3, (ITEMS, RANK))

    def train(self, who: np.ndarray, what: np.ndarray, ratings: np.ndarray, rate: float) -> float:
        """One update on a random batch; returns its mean squared error."""
        chosen = self.rng.integers(0, KNOWN, BATCH)
        a, b = who[chosen], what[chosen]
        people, items = self.people[a], self.items[b]
        error = (people * items).sum(axis=1) - ratings[chosen]
        np.add.at(self.people, a, -rate * (error[:, None] * items + 0.02 * people))
        np.add.at(self.items, b, -rate * (error[:, None] * people + 0.02 * items))
        return float((error**2).mean())

    def save(self, directory: Path) -> None:
        """Write both tables and the random state: all that a resumed run needs."""
        np.savez(directory / "state.npz", people=self.people, items=self.items)
        (directory / "rng.json").write_text(json.dumps(self.rng.bit_generator.state))

    def load(self, directory: Path) -> None:
        """Read back what ``save`` wrote."""
        with np.load(directory / "state.npz") as saved:
            self.people, self.items = saved["people"], saved["items"]
        self.rng.bit_generator.state = json.loads((directory / "rng.json").read_text())


def main() -> None:
    """Train and print the loss as it falls."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--device", choices=["gpu", "tpu"], default="gpu")
    parser.add_argument("--rate", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="outside cloudgavel: resume from and save into this folder")
    given = parser.parse_args()

    print(f"training for a {given.device}")
    who, what, ratings = known_ratings(np.random.default_rng(given.seed))
    factors = Factors(given.seed)
    for step in training.steps(
        given.steps, save=factors.save, load=factors.load, standalone_dir=given.keep
    ):
        loss = factors.train(who, what, ratings, given.rate)
        training.report(loss=loss)
        if step % 100 == 0 or step + 1 == given.steps:
            print(f"step {step + 1:>5} of {given.steps}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
