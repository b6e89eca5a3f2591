"""YAML text as a tree in which every scalar is text and every node knows its place.

YAML's own typing is a trap (``12:30:00`` is 45000, ``no`` is false, ``1e-3`` is a string), so
scalars stay as written and the fields type them. Built from parser events: no recursion through
aliases, no construction of objects.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import yaml

from cloudgavel.jobs.mistakes import Mistakes, Place
from cloudgavel.jobs.quantities import quoted

DEEPEST: Final = 30
LARGEST_NODES: Final = 200_000
LARGEST_CHARACTERS: Final = 8_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalarNode:
    """One word, number or text, as written."""

    text: str
    is_plain: bool
    """Written without quotes."""
    place: Place

    @property
    def is_null(self) -> bool:
        """Nothing after the colon, or ``null`` or ``~`` without quotes: the key is not given."""
        return self.is_plain and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, kw_only=True, slots=True)
class ListNode:
    """A list."""

    items: tuple["Node", ...]
    place: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class MapNode:
    """A map, without duplicate keys."""

    entries: tuple[tuple[ScalarNode, "Node"], ...]
    place: Place

    def get(self, key: str) -> "Node | None":
        """Return the value of a key; ``None`` if it is not given or null."""
        for name, value in self.entries:
            if name.text == key:
                return None if isinstance(value, ScalarNode) and value.is_null else value
        return None


Node = ScalarNode | ListNode | MapNode


def kind_of(node: Node) -> str:
    """Name a node for a message: ``a map``, ``a list`` or the quoted text."""
    if isinstance(node, MapNode):
        return "a map"
    if isinstance(node, ListNode):
        return "a list"
    return "nothing" if node.is_null else quoted(node.text)


def read_yaml(text: str, mistakes: Mistakes) -> Node | None:
    """Build the tree of one YAML document; ``None`` if it is empty or cannot be read.

    Syntax errors, duplicate keys, tags, unknown aliases and a second document are recorded in
    ``mistakes``.
    """
    start = Place(line=1, column=1, path="")
    if len(text) > LARGEST_CHARACTERS:
        mistakes.add(start, f"the file is larger than {LARGEST_CHARACTERS // 10**6} MB")
        return None
    try:
        return _Builder(_events(text.removeprefix("\ufeff")), mistakes).document()
    except _UnreadableError as unreadable:
        mistakes.add(unreadable.place, unreadable.message)
    except yaml.reader.ReaderError as wrong:
        mistakes.add(_place_of_character(text, wrong.position), "a character YAML does not allow")
    except yaml.MarkedYAMLError as wrong:
        mistakes.add(*_syntax_mistake(wrong))
    except (yaml.YAMLError, UnicodeError) as wrong:
        mistakes.add(start, f"cannot be read as YAML: {' '.join(str(wrong).split())}")
    return None


def _events(text: str) -> Iterator[yaml.Event]:
    """Parse with libyaml where it is compiled in: about ten times faster."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return iter(yaml.parse(text, Loader=loader))


def _place_of_character(text: str, position: int) -> Place:
    before = text[:position]
    column = position - (before.rfind("\n") + 1) + 1
    return Place(line=before.count("\n") + 1, column=column, path="")


def _syntax_mistake(wrong: yaml.MarkedYAMLError) -> tuple[Place, str]:
    mark = wrong.problem_mark or wrong.context_mark
    place = Place(
        line=mark.line + 1 if mark is not None else 1,
        column=mark.column + 1 if mark is not None else 1,
        path="",
    )
    problem = wrong.problem or wrong.context or "unknown problem"
    advice = ""
    if "cannot start any token" in problem:
        advice = "; indent with spaces, not tabs, and quote text that begins with @, ` or %"
    elif "mapping values are not allowed" in problem:
        advice = "; quote text that contains `: `"
    elif "expected ',' or" in problem:
        advice = "; inside { } and [ ] quote text that contains braces, brackets or commas"
    return place, f"cannot be read as YAML: {problem}{advice}"


class _UnreadableError(Exception):
    """Reading cannot go on after this."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message


_CORE_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")
) | {"!", "tag:yaml.org,2002:timestamp"}
_SIMPLE_KEY: Final = re.compile(r"[A-Za-z0-9_.-]+")


class _Builder:
    """Builds nodes from events, at a depth and of a size that are bounded."""

    def __init__(self, events: Iterator[yaml.Event], mistakes: Mistakes) -> None:
        self._events = events
        self._mistakes = mistakes
        # Size counts a shared node once per alias, so that aliases cannot blow the walk up.
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._size = 0

    def document(self) -> Node | None:
        root: Node | None = None
        count = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                count += 1
                if count > 1:
                    self._mistakes.add(
                        self._place(event, ""), "the file holds more than one YAML document"
                    )
                    break
                root = self._node(next(self._events), "", 0)
        return root

    @staticmethod
    def _place(event: yaml.Event, path: str) -> Place:
        mark = event.start_mark
        assert mark is not None  # only events made by hand lack one
        return Place(line=mark.line + 1, column=mark.column + 1, path=path)

    def _node(self, event: yaml.Event, path: str, depth: int) -> Node:
        place = self._place(event, path)
        if depth > DEEPEST:
            raise _UnreadableError(place, f"nested more than {DEEPEST} levels deep")
        size_before = self._size
        self._size += 1
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event, place)
        tag = getattr(event, "tag", None)
        anchor = getattr(event, "anchor", None)
        if tag is not None and tag not in _CORE_TAGS:
            self._mistakes.add(place, f"tags such as {quoted(tag)} are not supported")
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            is_text = event.style not in (None, "") or tag == "tag:yaml.org,2002:str"
            node = ScalarNode(text=event.value, is_plain=not is_text, place=place)
        elif isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(inner, f"{path}[{len(items)}]", depth + 1))
            node = ListNode(items=tuple(items), place=place)
        else:
            node = MapNode(entries=self._entries(path, depth), place=place)
        if self._size > LARGEST_NODES:
            raise _UnreadableError(place, f"more than {LARGEST_NODES:,} values")
        if anchor is not None:
            self._anchors[anchor] = (node, self._size - size_before)
        return node

    def _aliased(self, event: yaml.AliasEvent, place: Place) -> Node:
        known = self._anchors.get(event.anchor or "")
        if known is None:
            raise _UnreadableError(
                place, f"`*{event.anchor}` refers to no earlier `&{event.anchor}`"
            )
        node, size = known
        self._size += size
        if self._size > LARGEST_NODES:
            raise _UnreadableError(place, f"more than {LARGEST_NODES:,} values")
        return node

    def _entries(self, path: str, depth: int) -> tuple[tuple[ScalarNode, Node], ...]:
        entries: dict[str, tuple[ScalarNode, Node]] = {}
        merged: list[Node] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, path, depth + 1)
            if not isinstance(key, ScalarNode):
                self._node(next(self._events), path, depth + 1)
                self._mistakes.add(key.place, f"expected a word as the key, got {kind_of(key)}")
                continue
            value = self._node(next(self._events), _joined(path, key.text), depth + 1)
            if key.text == "<<" and key.is_plain:
                merged.extend(value.items if isinstance(value, ListNode) else [value])
                continue
            first = entries.get(key.text)
            if first is not None:
                self._mistakes.add(
                    key.place,
                    f"the key `{key.text}` is given twice, first in line {first[0].place.line}",
                )
                continue
            entries[key.text] = (key, value)
        for each in merged:
            if not isinstance(each, MapNode):
                self._mistakes.add(each.place, f"`<<` merges maps, got {kind_of(each)}")
                continue
            for name, value in each.entries:
                entries.setdefault(name.text, (name, value))
        return tuple(entries.values())


def _joined(path: str, key: str) -> str:
    """Path of a key under a path: ``jobs[2].throughput["A100:8"]``."""
    if not _SIMPLE_KEY.fullmatch(key):
        return f"{path}[{quoted(key)}]"
    return f"{path}.{key}" if path else key
