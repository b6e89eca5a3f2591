"""Everything one decision may look at."""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import MappingProxyType

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec
from cloudgavel.mechanism.fleet import Instance
from cloudgavel.pricing.offer import Offer
from cloudgavel.pricing.sightings import OfferSightings


@dataclass(frozen=True, kw_only=True, slots=True)
class JobView:
    """One job as it is known at ``ClusterState.now_s``."""

    spec: JobSpec
    phase: JobPhase
    steps_done: int
    """Known progress of the present attempt, or of the newest checkpoint when it is nowhere."""
    saved_steps: int
    """Step of the newest committed checkpoint."""
    attempt: int = 0
    """Number of the newest attempt; 0 = never started."""
    instance_ids: tuple[str, ...] = ()
    """Where its process is (STARTING, RUNNING, SAVING, MOVING)."""
    request: AcceleratorRequest | None = None
    """The gang it holds."""
    accelerator_indices: tuple[int, ...] = ()
    """Accelerators it holds on each of its instances; empty = unknown (the lowest free count)."""
    move_to: tuple[str, ...] = ()
    """Instances it is on its way to (MOVING)."""
    stopping: bool = False
    """Told to save and stop (``Move``); its process is not known to be gone."""
    stop_asked_at_s: float | None = None
    """When it was told so; ``None`` = not, or unknown when (then it is waited for)."""
    placed_at_s: float | None = None
    """When the present attempt was started."""
    release_at_s: float = 0.0
    """Earliest start by ``arrives``; dependencies are told by ``waits_for``."""
    waits_for: tuple[str, ...] = ()
    """Jobs of ``after`` that are not finished yet."""
    deadline_at_s: float | None = None
    promise_released: bool = False
    """Its deadline is no longer promised (released in an earlier round)."""
    covered: bool = False
    """The last decision called its promise covered: the money for it stays put aside."""
    throughput_steps_per_s: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By ``AcceleratorRequest.label``: given, measured, or the low quantile of an estimate; missing
    means unknown."""
    estimated: frozenset[str] = frozenset()
    """Labels whose throughput is an estimate: no promise rests on them."""
    spent_usd: float = 0.0
    idle_usd: float = 0.0
    """Its part of what the machines that were rented for it cost while nobody was on them."""
    waiting_since_s: float | None = None
    """When its last attempt ended; ``None`` = it never ran, or it is running."""
    save_error: str | None = None
    """The last save failed: it is not moved."""
    save_every_s: float = 1800.0
    """The interval of periodic saves in force."""
    checkpoint_gib: float | None = None
    """Size of its newest checkpoint, or as it says; ``None`` = unknown."""
    started_at_s: float | None = None
    """First start of any attempt (``max_duration`` counts from here)."""
    excluded: frozenset[str] = frozenset()
    """Accelerators where it ran out of memory."""

    @property
    def active(self) -> bool:
        """True while there is work left."""
        return self.phase not in (JobPhase.FINISHED, JobPhase.FAILED, JobPhase.CANCELLED)

    @property
    def steps_left(self) -> int:
        """Steps not done yet by the present attempt's knowledge."""
        return max(0, self.spec.steps_total - self.steps_done)

    @property
    def steps_left_if_lost(self) -> int:
        """Steps to do if the present attempt vanished now."""
        return max(0, self.spec.steps_total - self.saved_steps)

    @property
    def steps_left_if_moved(self) -> int:
        """Steps to do elsewhere: a move saves first, unless it is nowhere or cannot save."""
        saves = bool(self.instance_ids) and self.save_error is None
        return self.steps_left if saves else self.steps_left_if_lost


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaLimit:
    """At most ``limit`` units over the offers it counts."""

    name: str
    limit: float
    units_per_instance: Mapping[str, float]
    """By offer id; offers not named are not counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockedOffer:
    """An offer that is not asked for until ``until_s`` (capacity or quota refusal, back-off)."""

    offer_id: str
    until_s: float
    reason: str
    for_capacity: bool = True
    """There was none to be had: it may come back. False: the account or the request is why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReserveRules:
    """How pessimistic the guards are."""

    terminate_confirm_s: float = 120.0
    """Worst time from asking an end to knowing it."""
    change_over_quantile: float = 1.5
    """Boot and restore take at most this many times their expected length."""
    stop_grace_quantile: float = 2.0
    """A job that was told to stop and has not after this many times its worst time for it loses
    its machine."""
    boot_s: float = 180.0
    """Expected boot when the offer does not say."""
    minimum_billed_s: float = 60.0
    wake_lag_s: float = 5.0
    """A decision comes at most this much later than asked for."""
    price_rise_share: float = 0.25
    """A spot price rises by at most this share between a decision and the end that the next one
    asks for (a rise wakes the loop at once); never above the on-demand price where that is known
    and higher than today's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterState:
    """The snapshot that ``decide`` turns into a plan; time is in it, nothing else is read."""

    run_id: str
    now_s: float
    created_at_s: float
    round_number: int
    round_s: float
    jobs: tuple[JobView, ...]
    instances: tuple[Instance, ...]
    """Live ones only (REQUESTED to TERMINATING)."""
    offers: tuple[Offer, ...]
    """What can be asked for, at today's price; without a price = not rentable."""
    boot_s_by_offer: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    quotas: tuple[QuotaLimit, ...] = ()
    blocked: tuple[BlockedOffer, ...] = ()
    spot_seen: Mapping[str, OfferSightings] = field(default_factory=lambda: MappingProxyType({}))
    """By spot offer: what was seen of it up to now, living machines included."""
    budget_usd: float | None = None
    spent_usd: float = 0.0
    """Machines, and what checkpoints cost beside them."""
    store_cloud: str | None = None
    """Whose store the checkpoints go to; ``None`` = a directory: nothing is charged."""
    max_usd_per_hour: float | None = None
    deadline_margin_share: float = 0.10
    """Part of the time from release to deadline that plans keep free."""
    max_spot_wait_s: float = 3600.0
    """A job without a deadline waits so long for spot that is refused, then goes on demand."""
    best_effort: bool = False
    """Promises may be released from the start; without it luck alone releases them."""
    stopping: bool = False
    """Save everything and end every machine (``down``, budget gone, finished)."""
    rules: ReserveRules = ReserveRules()

    def digest(self) -> str:
        """Hash of all that matters but ``now_s`` and the round's number.

        Offers enter by id, price and risk: the rest of an offer follows from its id.
        """
        offers = ";".join(_offer_text(offer) for offer in self.offers)
        body = canonical_text(
            (
                self.run_id, self.jobs, self.instances, self.quotas, self.blocked,
                _instants(self.spot_seen), self.budget_usd, self.spent_usd,
                self.max_usd_per_hour, self.best_effort, self.stopping,
            )
        )  # fmt: skip
        return hashlib.sha256((body + offers).encode()).hexdigest()[:16]


def _instants(seen: Mapping[str, OfferSightings]) -> Mapping[str, tuple[object, ...]]:
    """What was seen, without the ends of spans, which grow while time passes."""
    return {
        offer_id: (each.taken, *((one.at_s, one.available) for one in each.seen))
        for offer_id, each in seen.items()
    }


def _offer_text(offer: Offer) -> str:
    return f"{offer.offer_id}={offer.price_usd_per_hour!r},{offer.interruption_rate_per_hour!r}"


def canonical_text(value: object) -> str:
    """Text of a value that is the same in every process: sets and mappings are sorted."""
    # Plain values first, by their very type: a decision writes out thousands of them.
    if value is None or type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, (tuple, list)):
        return "(" + ",".join([canonical_text(each) for each in value]) + ")"
    if isinstance(value, JobSpec):
        # Its mappings keep the order of the file: the same file, the same text.
        return repr(value)
    if isinstance(value, Offer):
        return _offer_text(value)
    if is_dataclass(value) and not isinstance(value, type):
        named = [f"{name}={canonical_text(getattr(value, name))}" for name in _names(type(value))]
        return f"{type(value).__name__}({','.join(named)})"
    if isinstance(value, (frozenset, set)):
        return "<" + ",".join(sorted([canonical_text(each) for each in value])) + ">"
    if isinstance(value, Mapping):
        pairs = sorted([(canonical_text(key), canonical_text(each)) for key, each in value.items()])
        return "{" + ",".join([f"{key}:{each}" for key, each in pairs]) + "}"
    return repr(value)


_PLAIN = frozenset({str, int, float, bool})


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
