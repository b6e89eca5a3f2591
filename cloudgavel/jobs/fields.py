"""Typed reading of the fields of a map, recording every mistake and going on."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from cloudgavel.jobs.mistakes import Mistakes, Place, did_you_mean
from cloudgavel.jobs.quantities import QuantityError
from cloudgavel.jobs.yaml_nodes import ListNode, MapNode, Node, ScalarNode, kind_of

T = TypeVar("T")

_SYNONYMS: Final = MappingProxyType(
    {
        "cmd": "command",
        "run": "command",
        "script": "command",
        "gpu": "accelerators",
        "gpus": "accelerators",
        "tpus": "accelerators",
        "resources": "accelerators",
        "num_steps": "steps",
        "total_steps": "steps",
        "steps_total": "steps",
        "max_steps": "steps",
        "iterations": "steps",
        "slo": "deadline",
        "timeout": "max_duration",
        "depends_on": "after",
        "needs": "after",
        "matrix": "foreach",
        "priority": "weight",
        "envs": "env",
        "environment": "env",
        "max_retries": "retries",
        "speed": "throughput",
        "steps_per_s": "throughput",
        "mem": "memory",
        "cwd": "workdir",
        "spot": "spot_only",
        "use_spot": "spot_only",
        "providers": "clouds",
        "cloud": "clouds",
        "tasks": "jobs",
        "scheduler": "policy",
        "max_cost_per_hour": "max_usd_per_hour",
    }
)


class Fields:
    """The fields of one map. Every reader returns ``None`` when the field is absent or wrong.

    Unknown keys are recorded at once; ``elsewhere`` names, for known keys of another level, where
    they belong.
    """

    def __init__(
        self,
        node: MapNode,
        mistakes: Mistakes,
        known: Sequence[str],
        *,
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.node = node
        self.mistakes = mistakes
        for key, _ in node.entries:
            if key.text in known:
                continue
            synonym = _SYNONYMS.get(key.text.lower())
            if key.text in elsewhere:
                advice = f"; it belongs {elsewhere[key.text]}"
            elif synonym in known:
                advice = f"; did you mean `{synonym}`?"
            else:
                advice = did_you_mean(key.text, known)
            mistakes.add(key.place, f"unknown key `{key.text}`{advice}")

    def get(self, key: str) -> Node | None:
        """Return a field's node as it is."""
        return self.node.get(key)

    def place(self, key: str) -> Place:
        """Return the place of a field, or of the whole map if it is absent."""
        found = self.node.get(key)
        return found.place if found is not None else self.node.place

    def wrong(self, key: str, message: str) -> None:
        """Record a mistake at a field."""
        self.mistakes.add(self.place(key), message)

    def text(self, key: str) -> str | None:
        """Read a text that is not blank."""
        node = self.get(key)
        if node is None:
            return None
        text = scalar_text(node, self.mistakes)
        if text is not None and not text.strip():
            self.mistakes.add(node.place, f"`{key}` is empty")
            return None
        return text

    def read(self, key: str, reader: Callable[[str], T]) -> T | None:
        """Read one scalar with a reader of ``jobs.quantities`` or the like."""
        node = self.get(key)
        return None if node is None else read_scalar(node, reader, self.mistakes)

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of texts; one text alone is a list of one."""
        return tuple(text for text, _ in self.placed_texts(key))

    def placed_texts(self, key: str) -> tuple[tuple[str, Place], ...]:
        """Read a list of texts with the place of each."""
        node = self.get(key)
        if node is None:
            return ()
        found = []
        for item in node.items if isinstance(node, ListNode) else (node,):
            text = scalar_text(item, self.mistakes)
            if text is not None and not text.strip():
                self.mistakes.add(item.place, "expected a text, got nothing")
            elif text is not None:
                found.append((text, item.place))
        return tuple(found)

    def map(self, key: str) -> MapNode | None:
        """Read a map."""
        node = self.get(key)
        if node is None or isinstance(node, MapNode):
            return node
        self.mistakes.add(node.place, f"expected a map, got {kind_of(node)}")
        return None


def scalar_text(node: Node, mistakes: Mistakes) -> str | None:
    """Return the text of a scalar, or record a mistake."""
    if isinstance(node, ScalarNode):
        return node.text
    mistakes.add(node.place, f"expected one value, got {kind_of(node)}")
    return None


def read_scalar(node: Node, reader: Callable[[str], T], mistakes: Mistakes) -> T | None:
    """Type a scalar with a reader; its ``QuantityError`` becomes a mistake at this place."""
    text = scalar_text(node, mistakes)
    if text is None:
        return None
    try:
        return reader(text)
    except QuantityError as wrong:
        mistakes.add(node.place, str(wrong))
        return None


def within(
    reader: Callable[[str], float],
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    what: str,
) -> Callable[[str], float]:
    """Narrow a reader to a range; ``what`` names the quantity in the message."""

    def read(text: str) -> float:
        value = reader(text)
        if above is not None and value <= above:
            raise QuantityError(f"{what} must be more than {above:g}, got {text}")
        if at_least is not None and value < at_least:
            raise QuantityError(f"{what} must be at least {at_least:g}, got {text}")
        if at_most is not None and value > at_most:
            raise QuantityError(f"{what} must be at most {at_most:g}, got {text}")
        return value

    return read


def whole_within(
    reader: Callable[[str], int], *, at_least: int, at_most: int, what: str
) -> Callable[[str], int]:
    """Narrow a whole-number reader to a range, both ends included."""

    def read(text: str) -> int:
        value = reader(text)
        if not at_least <= value <= at_most:
            raise QuantityError(f"{what} must be between {at_least} and {at_most}, got {text}")
        return value

    return read
