"""A cluster as people write it: ``v100=8,p100=16,k80=24``."""

from collections.abc import Mapping

from cloudgavel.errors import UsageError
from cloudgavel.mechanism.fixed_cluster.cluster import AcceleratorType

PUBLISHED_USD_PER_HOUR: Mapping[str, float] = {"v100": 0.74, "p100": 0.43, "k80": 0.135}
"""Google Cloud's preemptible prices per accelerator that the 2020 paper's cost figures are in."""


def parse_cluster(
    cluster: str, *, prices: str = "", per_instance: str = ""
) -> tuple[AcceleratorType, ...]:
    """Read types with counts; ``prices`` (USD/h of one accelerator) and ``per_instance`` alike.

    Types without a price given have the published one, or none. Raises ``UsageError``.
    """
    counts = named_numbers("--cluster", cluster)
    given = named_numbers("--prices", prices)
    machines = named_numbers("--per-instance", per_instance)
    for option, numbers in (("--prices", given), ("--per-instance", machines)):
        for name in numbers:
            if name not in counts:
                raise UsageError(
                    f"{option} names `{name}`, which --cluster does not",
                    facts=[("in the cluster", ", ".join(counts))],
                )
    found = []
    for name, count in counts.items():
        if count != int(count) or count < 0:
            raise UsageError(f"--cluster has {count:g} of `{name}`: a whole number is meant")
        per = machines.get(name)
        if per is not None and (per != int(per) or per < 1):
            raise UsageError(f"--per-instance has {per:g} of `{name}`: a whole number is meant")
        price = given.get(name, PUBLISHED_USD_PER_HOUR.get(name))
        if price is not None and not 0 <= price < float("inf"):
            raise UsageError(f"--prices has {price:g} for `{name}`")
        found.append(
            AcceleratorType(
                accelerator=name,
                count=int(count),
                accelerators_per_instance=None if per is None else int(per),
                usd_per_hour=price,
            )
        )
    if not any(kind.count for kind in found):
        raise UsageError(
            "--cluster has no accelerators", hints=["write it as --cluster v100=8,p100=16"]
        )
    return tuple(found)


def named_numbers(option: str, text: str) -> dict[str, float]:
    """``a=1,b=2`` as a mapping in the order given. Raises ``UsageError``."""
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
            value = 0.0
        if not equals or not name.strip():
            raise UsageError(f"{option}: expected name=number with commas between, got `{part}`")
        if name.strip() in found:
            raise UsageError(f"{option} names `{name.strip()}` twice")
        found[name.strip()] = value
    return found
