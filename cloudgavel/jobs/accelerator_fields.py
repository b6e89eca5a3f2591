"""The fields of a job that speak of accelerators: ``accelerators``, ``throughput``, ``memory``."""

from collections.abc import Sequence
from typing import Final

from cloudgavel.jobs.accelerators import CATALOGUE, UnknownAcceleratorError, canonical
from cloudgavel.jobs.fields import read_scalar, scalar_text, whole_within, within
from cloudgavel.jobs.mistakes import Mistakes, Place
from cloudgavel.jobs.quantities import QuantityError, parse_integer, parse_number, quoted
from cloudgavel.jobs.spec import AcceleratorRequest
from cloudgavel.jobs.yaml_nodes import ListNode, MapNode, Node, ScalarNode, kind_of

LARGEST_GANG: Final = 4096

_count = whole_within(parse_integer, at_least=1, at_most=LARGEST_GANG, what="the count")


def read_accelerator(text: str) -> str:
    """Canonical name of one accelerator as written, as a scalar reader (``QuantityError``)."""
    try:
        return canonical(text)
    except UnknownAcceleratorError as unknown:
        raise QuantityError(f"{unknown.message}; {unknown.hints[0]}") from None


def read_request(text: str) -> AcceleratorRequest:
    """One gang as written: ``V100`` or ``A100:8`` (``QuantityError``)."""
    name, colon, count_text = text.partition(":")
    if not name.strip():
        raise QuantityError(f"expected an accelerator like V100 or A100:8, got {quoted(text)}")
    accelerator = read_accelerator(name)
    count = _count(count_text) if colon else 1
    return _one_slice(AcceleratorRequest(accelerator=accelerator, count=count))


def _one_slice(request: AcceleratorRequest) -> AcceleratorRequest:
    if CATALOGUE[request.accelerator].is_slice and request.count != 1:
        raise QuantityError(
            f"`{request.accelerator}` is a whole slice and its count is 1, got {request.count}"
        )
    return request


def read_requests(node: Node, mistakes: Mistakes) -> tuple[AcceleratorRequest, ...] | None:
    """Acceptable gangs in any spelling, in the order written, each once.

    ``V100``, ``V100:4``, ``[V100, A100:8]``, ``{V100: 1, A100: [1, 8]}``, ``[{T4: 1}]``. ``None``
    if any of it is wrong.
    """
    before = len(mistakes)
    found: list[AcceleratorRequest] = []
    for item in node.items if isinstance(node, ListNode) else (node,):
        if isinstance(item, MapNode):
            for key, value in item.entries:
                found.extend(_counted(key, value, mistakes))
        elif isinstance(item, ListNode):
            mistakes.add(item.place, "expected an accelerator like V100 or A100:8, got a list")
        else:
            request = read_scalar(item, read_request, mistakes)
            if request is not None:
                found.append(request)
    if len(mistakes) > before:
        return None
    if not found:
        mistakes.add(node.place, f"expected accelerators like [V100, A100:8], got {kind_of(node)}")
        return None
    return tuple(dict.fromkeys(found))


def _counted(key: ScalarNode, value: Node, mistakes: Mistakes) -> Sequence[AcceleratorRequest]:
    """Gangs of one map entry: ``A100: [1, 8]``, ``V100: 1``, or ``V100:`` for one."""
    if ":" in key.text:
        request = read_scalar(key, read_request, mistakes)
        if not (isinstance(value, ScalarNode) and value.is_null):
            mistakes.add(value.place, f"the count is already in the name `{key.text}`")
        return () if request is None else (request,)
    accelerator = read_scalar(key, read_accelerator, mistakes)
    if isinstance(value, ScalarNode) and value.is_null:
        counts: list[int] = [1]
    else:
        counts = []
        items = value.items if isinstance(value, ListNode) else (value,)
        if not items:
            mistakes.add(value.place, "expected a count like 1 or [1, 8], got an empty list")
        for item in items:
            count = read_scalar(item, _count, mistakes)
            if count is not None:
                counts.append(count)
    if accelerator is None:
        return ()
    requests = []
    for count in counts:
        try:
            requests.append(_one_slice(AcceleratorRequest(accelerator=accelerator, count=count)))
        except QuantityError as wrong:
            mistakes.add(value.place, str(wrong))
    return requests


_steps_per_s = within(parse_number, above=0, at_most=1e12, what="the steps per second")


def read_throughput(
    node: Node, requests: Sequence[AcceleratorRequest] | None, mistakes: Mistakes
) -> dict[str, float]:
    """Steps/s by label. Labels must be acceptable gangs of the job (``requests``, if known).

    One number alone is for a job that accepts a single gang.
    """
    if isinstance(node, ScalarNode):
        value = read_scalar(node, _steps_per_s, mistakes)
        if value is None or requests is None:
            return {}
        if len(requests) != 1:
            mistakes.add(
                node.place,
                "one number does not say for which accelerators: write a map like "
                f'{{"{requests[0].label}": {node.text}}}',
            )
            return {}
        return {requests[0].label: value}
    if not isinstance(node, MapNode):
        mistakes.add(node.place, f"expected a map like {{V100: 7.8}}, got {kind_of(node)}")
        return {}
    found: dict[str, float] = {}
    for key, item in node.entries:
        request = read_scalar(key, read_request, mistakes)
        if isinstance(item, ScalarNode) and item.is_null:
            continue  # null means unknown, like a label that is left out
        value = read_scalar(item, _steps_per_s, mistakes)
        if request is None or value is None:
            continue
        if requests is not None and request not in requests:
            acceptable = ", ".join(each.label for each in requests)
            mistakes.add(
                key.place,
                f"`{request.label}` is not among the job's accelerators, which are {acceptable}",
            )
        elif request.label in found:
            mistakes.add(key.place, f"`{request.label}` is given twice")
        else:
            found[request.label] = value
    return found


def check_memory(
    memory_gib: float, requests: Sequence[AcceleratorRequest], place: Place, mistakes: Mistakes
) -> None:
    """Record a mistake if no acceptable accelerator has the memory that the job needs of each."""
    largest = max(
        (CATALOGUE[request.accelerator] for request in requests), key=lambda each: each.memory_gib
    )
    if memory_gib > largest.memory_gib:
        unit = "per chip" if largest.is_slice else "each"
        mistakes.add(
            place,
            f"needs {memory_gib:g} GiB per accelerator; the largest that it accepts is "
            f"{largest.name} with {largest.memory_gib:g} GiB {unit}",
        )


def read_cluster(node: Node, mistakes: Mistakes) -> dict[str, int] | None:
    """Accelerators of a fixed cluster by canonical name: ``{V100: 8, P100: 16}``."""
    if not isinstance(node, MapNode) or not node.entries:
        mistakes.add(node.place, f"expected a map like {{V100: 8}}, got {kind_of(node)}")
        return None
    found: dict[str, int] = {}
    for key, value in node.entries:
        accelerator = read_scalar(key, read_accelerator, mistakes)
        if scalar_text(value, mistakes) is None:
            continue
        count = read_scalar(
            value,
            whole_within(parse_integer, at_least=1, at_most=10**6, what="the count"),
            mistakes,
        )
        if accelerator is None or count is None:
            continue
        if accelerator in found:
            mistakes.add(key.place, f"`{accelerator}` is given twice")
        found[accelerator] = count
    return found
