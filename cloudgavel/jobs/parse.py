"""YAML text -> ``RunSpec``; every mistake with file, line, column and path, all at once."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from cloudgavel.errors import SpecError
from cloudgavel.jobs.command_check import command_mistakes
from cloudgavel.jobs.fields import Fields
from cloudgavel.jobs.job_fields import (
    JOB_KEYS,
    SHARED_KEYS,
    SHELL_KEYS,
    ReadJob,
    Surroundings,
    job_keys,
    read_job,
)
from cloudgavel.jobs.mistakes import Mistakes
from cloudgavel.jobs.notes import notes_of
from cloudgavel.jobs.references import check_names, resolve_after
from cloudgavel.jobs.run_fields import RUN_KEYS, jobs_items, read_head
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.jobs.variables import Replacement, foreach_choices, name_part, names_in
from cloudgavel.jobs.yaml_nodes import MapNode, Node, ScalarNode, kind_of, read_yaml

__all__ = ["command_mistakes", "notes_of", "parse_run"]

_MERGED_KEYS: Final = ("checkpoint", "env")
"""Maps of ``defaults`` that a job's own map is laid over, key by key; others are replaced."""
_IN_A_JOB: Final = {key: "under each job" for key in JOB_KEYS if key not in RUN_KEYS}
_AT_THE_TOP: Final = {key: "at the top of the file" for key in RUN_KEYS if key not in JOB_KEYS}


def parse_run(
    text: str, *, source: str, base_dir: str, environment: Mapping[str, str], now_s: float
) -> RunSpec:
    """Read a whole jobs.yaml.

    ``source`` names the file in messages; ``base_dir`` is the absolute directory that relative
    paths count from; ``environment`` gives the values of ``$NAME``; ``now_s`` (UNIX seconds) is
    what deadlines may not precede (minus infinity: any may). Raises ``SpecError`` with every
    mistake found. Pure.
    """
    mistakes = Mistakes(source)
    root = read_yaml(text, mistakes)
    if root is None or (isinstance(root, ScalarNode) and root.is_null):
        if mistakes:
            raise mistakes.error()
        raise SpecError(
            f"`{source}` is empty",
            mistakes=(),
            hints=("write a commented example with `cloudgavel init`",),
        )
    if not isinstance(root, MapNode):
        mistakes.add(root.place, f"expected a map with `name` and `jobs`, got {kind_of(root)}")
        raise mistakes.error(hints=("write a commented example with `cloudgavel init`",))

    head_node = replace(
        root, entries=tuple(pair for pair in root.entries if pair[0].text not in _LATER_KEYS)
    )
    replacement = Replacement(environment=environment, foreach={}, mistakes=mistakes)
    replaced_head = replacement.in_node(head_node)
    assert isinstance(replaced_head, MapNode)
    head = read_head(Fields(replaced_head, mistakes, RUN_KEYS, elsewhere=_IN_A_JOB), base_dir)
    around = Surroundings(
        base_dir=posixpath.normpath(base_dir),
        home=environment.get("HOME"),
        now_s=now_s,
        mistakes=mistakes,
    )
    whole = _Whole(root, replacement, around)
    jobs = whole.read_jobs()
    check_names(jobs, mistakes)
    specs = resolve_after(jobs, whole.groups, mistakes)
    if mistakes:
        raise mistakes.error(hints=whole.not_checked)
    return RunSpec(jobs=specs, source=source, folder=around.base_dir, **head)


_LATER_KEYS: Final = ("jobs", "defaults")


class _Whole:
    """Jobs of one file: defaults laid under, ``foreach`` expanded, variables replaced."""

    def __init__(self, root: MapNode, replacement: Replacement, around: Surroundings) -> None:
        self._replacement = replacement
        self._around = around
        self._mistakes = around.mistakes
        # The head was read for its own keys already: here only `jobs` and `defaults` matter.
        later = tuple(pair for pair in root.entries if pair[0].text in _LATER_KEYS)
        fields = Fields(replace(root, entries=later), self._mistakes, RUN_KEYS)
        self._defaults = fields.map("defaults")
        if self._defaults is not None:
            elsewhere = dict.fromkeys(JOB_KEYS, "to one job, not to defaults")
            Fields(self._defaults, self._mistakes, SHARED_KEYS, elsewhere=elsewhere)
        self._items = jobs_items(fields)
        self.groups: dict[str, list[str]] = {}
        self.not_checked: list[str] = []
        """Of each job whose ``foreach`` is wrong: that its values were not looked at."""

    def read_jobs(self) -> list[ReadJob]:
        """Read every job; a ``foreach`` job becomes several."""
        return [job for item in self._items for job in self._expanded(item)]

    def _expanded(self, item: MapNode) -> list[ReadJob]:
        foreach = item.get("foreach")
        if foreach is not None:
            foreach = self._replacement.in_node(foreach)
        merged = _laid_over(item, self._defaults)
        choices = foreach_choices(foreach, self._mistakes)
        if not choices:
            # The variables are unknown, so the values of this job cannot be judged fairly.
            job_keys(merged, _AT_THE_TOP, self._mistakes)
            name = item.get("name")
            said = f"`{name.text}`" if isinstance(name, ScalarNode) else "one job"
            self.not_checked.append(f"{said} is checked further once its foreach is right")
            return []
        jobs = [
            read_job(self._with_values(merged, choice), _AT_THE_TOP, self._around)
            for choice in choices
        ]
        if foreach is not None:
            name = item.get("name")
            if isinstance(name, ScalarNode):
                if not names_in(name.text):
                    self.groups[name.text] = [job.name for job in jobs if job.name is not None]
                jobs = [_of_family(job, name.text) for job in jobs]
        return jobs

    def _with_values(self, item: MapNode, choice: Mapping[str, str]) -> MapNode:
        """Replace variables in one job, and give it a name of its own within its group."""
        replacement = replace(self._replacement, foreach=choice)
        named = replace(
            replacement, foreach={key: name_part(value) for key, value in choice.items()}
        )
        entries: list[tuple[ScalarNode, Node]] = []
        for key, value in item.entries:
            if key.text == "foreach":
                continue
            if key.text == "name" and isinstance(value, ScalarNode):
                new: Node = named.in_node(_with_suffix(value, choice))
            else:
                new = replacement.in_node(value, shell=key.text in SHELL_KEYS)
            entries.append((key, new))
        return replace(item, entries=tuple(entries))


def _of_family(job: ReadJob, family: str) -> ReadJob:
    return job if job.spec is None else replace(job, spec=replace(job.spec, family=family))


def _with_suffix(name: ScalarNode, choice: Mapping[str, str]) -> ScalarNode:
    """Append the variables that a name does not mention: ``sweep`` becomes ``sweep-$lr``."""
    if name.is_null or not choice:
        return name
    mentioned = names_in(name.text)
    parts = [name.text]
    parts += [f"{key}-${{{key}}}" for key in choice if key not in mentioned]
    return replace(name, text="-".join(parts))


def _laid_over(item: MapNode, defaults: MapNode | None) -> MapNode:
    """Lay a job over the defaults; ``checkpoint`` and ``env`` are merged key by key.

    Keys that do not belong under ``defaults`` were recorded as mistakes and are left out.
    """
    if defaults is None:
        return item
    own = {key.text: value for key, value in item.entries}
    entries: list[tuple[ScalarNode, Node]] = []
    for key, value in item.entries:
        if key.text in _MERGED_KEYS and isinstance(value, MapNode):
            below = defaults.get(key.text)
            if isinstance(below, MapNode):
                value = replace(value, entries=_merged_entries(value.entries, below.entries))
        entries.append((key, value))
    entries += [
        pair for pair in defaults.entries if pair[0].text not in own and pair[0].text in SHARED_KEYS
    ]
    return replace(item, entries=tuple(entries))


def _merged_entries(
    over: Sequence[tuple[ScalarNode, Node]], under: Sequence[tuple[ScalarNode, Node]]
) -> tuple[tuple[ScalarNode, Node], ...]:
    given = {key.text for key, _ in over}
    return (*over, *(pair for pair in under if pair[0].text not in given))
