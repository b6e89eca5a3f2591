"""Where an earlier controller's deciding stood: whether its last decision still holds.

A controller that begins anew decides when the earlier one would have, not because it is new: a
decision off the rounds may cost money that a tight budget does not have.
"""

from collections.abc import Sequence

from cloudgavel.store import events as ev

_CONSEQUENCES = (
    ev.Accrued,
    ev.PromiseReleased,
    ev.LaunchIntended,
    ev.AttemptStarted,
    ev.SaveAsked,
    ev.StopAsked,
    ev.TerminateAsked,
    ev.JobFailed,
)
"""Written together with the decision that they follow from."""


def decision_holds(
    since_decision: Sequence[ev.Event], turning_points: tuple[type[ev.Event], ...]
) -> bool:
    """False when nothing was decided yet, or something came up since that calls for a decision.

    ``since_decision``: the newest ``RoundDecided`` and everything after it, in order; without a
    ``RoundDecided`` at its head nothing was decided. What follows from the decision itself (and was
    written with it) is none of the ``turning_points``, nor is a refused offer of a launch that goes
    on with the next one.
    """
    if not since_decision or not isinstance(since_decision[0], ev.RoundDecided):
        return False
    decision, *rest = since_decision
    while rest and isinstance(rest[0], _CONSEQUENCES) and rest[0].at_s == decision.at_s:
        rest.pop(0)
    return not any(
        isinstance(event, turning_points)
        and not (isinstance(event, ev.LaunchFailed) and not event.closes_intent)
        for event in rest
    )
