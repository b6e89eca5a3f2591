"""``$NAME`` and ``foreach``: text replacement over YAML nodes, before any field is read.

``foreach`` variables are replaced everywhere. Environment variables are replaced in every field
but those that belong to the job's own shell (``command``, ``setup``), where ``$$`` too stays as
written; elsewhere ``$$`` is a literal ``$``.
"""

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from cloudgavel.jobs.mistakes import Mistakes, Place, did_you_mean
from cloudgavel.jobs.yaml_nodes import ListNode, MapNode, Node, ScalarNode, kind_of

MOST_EXPANSIONS: Final = 10_000
_VARIABLE: Final = re.compile(r"\$\$|\$([A-Za-z_][A-Za-z0-9_]*)|\$\{([^}]*)\}")
IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """What names stand for while one job, or the head of the file, is read."""

    environment: Mapping[str, str]
    foreach: Mapping[str, str]
    mistakes: Mistakes

    def in_node(self, node: Node, *, shell: bool = False) -> Node:
        """Replace in every key and value below a node; ``shell`` leaves the environment alone."""
        if isinstance(node, ScalarNode):
            if "$" not in node.text:
                return node
            return replace(node, text=self.in_text(node.text, node.place, shell=shell))
        if isinstance(node, ListNode):
            items = tuple(self.in_node(item, shell=shell) for item in node.items)
            return replace(node, items=items)
        entries = []
        for key, value in node.entries:
            new_key = self.in_node(key)
            assert isinstance(new_key, ScalarNode)
            entries.append((new_key, self.in_node(value, shell=shell)))
        return replace(node, entries=tuple(entries))

    def in_text(self, text: str, place: Place, *, shell: bool = False) -> str:
        """Replace in one text; an undefined name is a mistake and stays as written."""

        def value_of(match: re.Match[str]) -> str:
            written = match[0]
            if written == "$$":
                return written if shell else "$"
            name = match[1] if match[1] is not None else match[2]
            if name in self.foreach:
                return self.foreach[name]
            if shell:
                return written
            if not IDENTIFIER.fullmatch(name):
                self.mistakes.add(
                    place, f"expected a name in braces like ${{NAME}}, got `{written}`"
                )
                return written
            if name in self.environment:
                return self.environment[name]
            where = "foreach or the environment" if self.foreach else "the environment"
            self.mistakes.add(
                place,
                f"`{written}` is not defined in {where}"
                f"{did_you_mean(name, self.foreach)}; write $${written[1:]} for a literal $",
            )
            return written

        return _VARIABLE.sub(value_of, text)


def names_in(text: str) -> frozenset[str]:
    """Names of the variables that a text refers to."""
    return frozenset(
        match[1] if match[1] is not None else match[2]
        for match in _VARIABLE.finditer(text)
        if match[0] != "$$"
    )


def foreach_choices(node: Node | None, mistakes: Mistakes) -> tuple[Mapping[str, str], ...]:
    """All combinations of a ``foreach`` map, the first variable varying slowest.

    Without ``foreach`` there is one combination, of nothing; with mistakes in it, none.
    """
    if node is None:
        return ({},)
    if not isinstance(node, MapNode):
        mistakes.add(node.place, f"expected a map like {{lr: [0.1, 0.01]}}, got {kind_of(node)}")
        return ()
    names: list[str] = []
    columns: list[tuple[str, ...]] = []
    for key, value in node.entries:
        if not IDENTIFIER.fullmatch(key.text):
            mistakes.add(key.place, f"`{key.text}` cannot be written as a $ variable")
            return ()
        column = _column(value, mistakes)
        if column is None:
            return ()
        names.append(key.text)
        columns.append(column)
    if not names:
        mistakes.add(node.place, "expected at least one variable like {lr: [0.1, 0.01]}")
        return ()
    count = math.prod(len(column) for column in columns)
    if count > MOST_EXPANSIONS:
        mistakes.add(node.place, f"makes {count:,} jobs; at most {MOST_EXPANSIONS:,} are allowed")
        return ()
    return tuple(dict(zip(names, choice, strict=True)) for choice in itertools.product(*columns))


def _column(node: Node, mistakes: Mistakes) -> tuple[str, ...] | None:
    """Values of one variable; ``None`` after recording a mistake."""
    if not isinstance(node, ListNode):
        mistakes.add(node.place, f"expected a list of values, got {kind_of(node)}")
        return None
    if not node.items:
        mistakes.add(node.place, "the list is empty: it makes no job")
        return None
    values = []
    for item in node.items:
        if not isinstance(item, ScalarNode):
            mistakes.add(item.place, f"expected a plain value, got {kind_of(item)}")
            return None
        values.append(item.text)
    return tuple(values)


def name_part(value: str) -> str:
    """Spell a foreach value so that it may stand in a name.

    ``Adam W`` becomes ``adam-w``, and ``-1`` becomes ``minus-1``.
    """
    if re.match(r"-\.?[0-9]", value):
        value = f"minus{value}"
    return re.sub(r"[^a-z0-9.]+", "-", value.lower()).strip("-.") or "empty"
