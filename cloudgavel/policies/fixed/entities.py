"""Entities with weights, of any depth: who may grow, and how fast, in water filling."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from cloudgavel.policies.problem import BoolArray, FloatArray, IntArray, JobRow


class Inside(StrEnum):
    """How an entity divides its weight among what is in it."""

    FAIRNESS = "fairness"
    FIFO = "fifo"


@dataclass(kw_only=True)
class _Node:
    name: str
    weight: float
    inside: Inside
    children: dict[str, "_Node"] = field(default_factory=dict)
    jobs: list[int] = field(default_factory=list)


class EntityTree:
    """Jobs under entities: ``JobRow.entity`` is a path, ``lab/vision`` is inside ``lab``.

    Jobs without an entity stand beside the top entities, with their own weight. An entity weighs 1
    unless ``weights`` says otherwise; ``inside`` names the entities (by path) that serve their
    jobs and sub-entities first come first served (the longest ``elapsed_s`` first, then by row).
    """

    def __init__(
        self,
        jobs: tuple[JobRow, ...],
        *,
        weights: Mapping[str, float],
        inside: Mapping[str, Inside | str],
    ) -> None:
        self._jobs = jobs
        weight = np.array([job.weight for job in jobs], dtype=np.float64)
        self._job_weight = np.where(np.isfinite(weight), np.maximum(weight, 0.0), 0.0)
        self._weights = weights
        self._inside = {path: Inside(kind) for path, kind in inside.items()}
        self._root = self._node("")
        self.node_of_job = np.zeros(len(jobs), dtype=np.int64)
        """(m,) a number for each job's innermost entity."""
        self.order_of_job = np.zeros(len(jobs))
        """(m,) place in the queue of an entity that is first come first served; 0 elsewhere."""
        numbers: dict[str, int] = {}
        arrival = sorted(range(len(jobs)), key=lambda row: (-jobs[row].elapsed_s, row))
        for row in arrival:
            path = self._path(row)
            node = self._root
            queued = node.inside is Inside.FIFO
            for depth in range(len(path)):
                name = "/".join(path[: depth + 1])
                if name not in node.children:
                    node.children[name] = self._node(name)
                node = node.children[name]
                queued |= node.inside is Inside.FIFO
            node.jobs.append(row)
            self.node_of_job[row] = numbers.setdefault("/".join(path), len(numbers))
            if queued:
                self.order_of_job[row] = 1 + len(node.jobs)

    def _node(self, name: str) -> _Node:
        return _Node(
            name=name,
            weight=float(self._weights.get(name, 1.0)),
            inside=self._inside.get(name, Inside.FAIRNESS),
        )

    def _path(self, row: int) -> list[str]:
        entity = self._jobs[row].entity
        return [part for part in (entity or "").split("/") if part]

    def weights(self, growing: BoolArray) -> FloatArray:
        """(m,) weight of every job that may grow now; they add to 1 (0 if none may).

        An entity's weight goes to those of its members that have a growing job: in proportion to
        their weights, or all to the first one. What a job or entity no longer needs goes to its
        siblings.
        """
        found = np.zeros(len(self._jobs))
        self._give(self._root, 1.0, growing, found)
        return found

    def _give(self, node: _Node, weight: float, growing: BoolArray, found: FloatArray) -> None:
        rows = self._rows(node)
        jobs = rows[growing[rows]]
        children = [child for child in node.children.values() if self._grows(child, growing)]
        if node.inside is Inside.FIFO:
            # Jobs and sub-entities stand in one queue, by who came first.
            first_child = min(children, key=lambda each: self._first(each, growing), default=None)
            if jobs.size and (
                first_child is None or self._came(jobs[0]) <= self._first(first_child, growing)
            ):
                found[jobs[0]] = weight
            elif first_child is not None:
                self._give(first_child, weight, growing, found)
            return
        own = self._job_weight[jobs]
        total = float(own.sum()) + sum(each.weight for each in children)
        if total <= 0:
            return
        found[jobs] = weight * own / total
        for child in children:
            self._give(child, weight * child.weight / total, growing, found)

    def _rows(self, node: _Node) -> IntArray:
        return np.array(node.jobs, dtype=np.int64)

    def _grows(self, node: _Node, growing: BoolArray) -> bool:
        return node.weight > 0 and (
            bool(growing[self._rows(node)].any())
            or any(self._grows(child, growing) for child in node.children.values())
        )

    def _came(self, row: int) -> tuple[float, int]:
        return (-self._jobs[row].elapsed_s, row)

    def _first(self, node: _Node, growing: BoolArray) -> tuple[float, int]:
        came = [self._came(row) for row in node.jobs if growing[row]]
        came += [
            self._first(child, growing)
            for child in node.children.values()
            if self._grows(child, growing)
        ]
        return min(came)
