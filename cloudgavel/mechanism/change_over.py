"""How long it takes to get a job going somewhere, and to get it off again."""

from cloudgavel.mechanism.state import ClusterState, JobView, ReserveRules
from cloudgavel.pricing.offer import Offer


def boot_s(state: ClusterState, offer: Offer) -> float:
    """Expected seconds from a launch to an agent that takes orders."""
    return state.boot_s_by_offer.get(offer.offer_id, state.rules.boot_s)


def restore_s(job: JobView) -> float:
    """Expected seconds from a start to the first step."""
    return job.spec.checkpoint.restore_s


def save_s(job: JobView) -> float:
    """Expected seconds one save holds the job up."""
    return job.spec.checkpoint.save_s


def change_over_s(state: ClusterState, offer: Offer, job: JobView) -> float:
    """Expected seconds from a launch to the first step: boot and restore."""
    return boot_s(state, offer) + restore_s(job)


def stop_s(job: JobView, rules: ReserveRules) -> float:
    """Worst seconds from the order to save and stop until the process is gone."""
    return save_s(job) * rules.change_over_quantile + job.spec.grace_s


def useful_stay_s(job: JobView, rules: ReserveRules) -> float:
    """Shortest stay on a machine that is ready which moves the job forward and saves it."""
    begin_s = restore_s(job) * rules.change_over_quantile + max(60.0, save_s(job))
    return begin_s + stop_s(job, rules) + rules.wake_lag_s


def useful_minimum_s(state: ClusterState, offer: Offer, job: JobView) -> float:
    """Shortest stay on a new machine that moves the job forward, its saving included.

    Boot and restore at their high quantile, then as much stepping as one save costs and at least
    a minute, or less where the job is done sooner (not counted here).
    """
    quantile = state.rules.change_over_quantile
    return change_over_s(state, offer, job) * quantile + max(60.0, save_s(job))
