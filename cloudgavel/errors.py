"""Every error a person can meet: what is wrong, the facts, what to do, and the exit code."""

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process says when it ends (``docs/reference/exit-codes.md``)."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CHANGES_PENDING = 3
    CREDENTIALS = 4
    INFEASIBLE = 5
    PARTLY_APPLIED = 6
    BUDGET_EXHAUSTED = 7
    BUG = 70
    INTERRUPTED = 130
    TERMINATED = 143


class CloudgavelError(Exception):
    """An explained failure.

    ``message`` is one sentence in the user's words without a full stop; ``facts`` are aligned
    ``(label, value)`` lines (needed, there is); ``hints`` are things to do, one each.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(
        self,
        message: str,
        *,
        facts: Sequence[tuple[str, str]] = (),
        hints: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.facts = tuple(facts)
        self.hints = tuple(hints)


class UsageError(CloudgavelError):
    """A flag, an argument or the order of commands is wrong."""

    exit_code = ExitCode.USAGE


class SpecError(CloudgavelError):
    """A jobs.yaml has mistakes; ``mistakes`` lists all of them, each with its place."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, mistakes: Sequence[str], hints: Sequence[str] = ()) -> None:
        super().__init__(message, hints=hints)
        self.mistakes = tuple(mistakes)


class CredentialsError(CloudgavelError):
    """A cloud refused who we are."""

    exit_code = ExitCode.CREDENTIALS


class InfeasibleError(CloudgavelError):
    """No allocation keeps what was asked; nothing was rented."""

    exit_code = ExitCode.INFEASIBLE


class PartlyAppliedError(CloudgavelError):
    """Some actions failed and money may be running."""

    exit_code = ExitCode.PARTLY_APPLIED


class BudgetExhaustedError(CloudgavelError):
    """The budget ran out: everything is saved and stopped, and resumable with more."""

    exit_code = ExitCode.BUDGET_EXHAUSTED


class BugError(CloudgavelError):
    """An invariant of ours does not hold."""

    exit_code = ExitCode.BUG
