"""Mistakes of a jobs.yaml, gathered so that all of them are told at once."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cloudgavel.errors import SpecError


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where something stands in the file: line and column from 1, and its path of keys."""

    line: int
    column: int
    path: str


class Mistakes:
    """A growing list of mistakes in one file; the same mistake at the same place counts once."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: dict[tuple[int, int, str], None] = {}

    def __bool__(self) -> bool:
        """Whether anything was found."""
        return bool(self._found)

    def __len__(self) -> int:
        """How many different mistakes were found."""
        return len(self._found)

    def add(self, place: Place, message: str) -> None:
        """Record one mistake; ``message`` is a sentence without a full stop."""
        path = f" {place.path}" if place.path else ""
        line = f"{self._source}:{place.line}:{place.column}{path}: {message}"
        self._found[(place.line, place.column, line)] = None

    def lines(self) -> tuple[str, ...]:
        """All mistakes in the order of the file: ``jobs.yaml:14:5 jobs[2].deadline: ...``."""
        return tuple(line for _, _, line in sorted(self._found))

    def error(self, hints: Sequence[str] = ()) -> SpecError:
        """Return the error that tells all of them."""
        count = len(self._found)
        noun = "mistake" if count == 1 else "mistakes"
        return SpecError(f"`{self._source}` has {count} {noun}", mistakes=self.lines(), hints=hints)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean `x`?`` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""
