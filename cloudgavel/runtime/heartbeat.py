"""The controller's signs of life: its lease in the run's database, and the one that agents read."""

from collections.abc import Callable

from cloudgavel.clock import Clock
from cloudgavel.errors import CloudgavelError
from cloudgavel.messages.codec import encode_lease
from cloudgavel.messages.layout import lease_key
from cloudgavel.objects.store import ObjectStore, StoreUnreachable
from cloudgavel.store.database import Database, DatabaseUnwritable


class Heartbeat:
    """Call it every few seconds; a place that cannot be written is told once and tried again.

    A full disk or a lost network for a minute must not end the controller: agents wait for
    ``agent_lease_s``, and whoever takes the run over meanwhile is noticed by ``LeaseLostError``,
    which is raised.
    """

    def __init__(
        self, *, clock: Clock, database: Database, store: ObjectStore, note: Callable[[str], None]
    ) -> None:
        """``clock`` is real time; ``note`` takes a plain sentence."""
        self._clock = clock
        self._database = database
        self._store = store
        self._note = note
        self._failing: set[str] = set()

    def __call__(self) -> None:
        """Beat once in both places; ``LeaseLostError`` when the run is another controller's."""
        now_s = self._clock.now_s()
        self._try("lease", lambda: self._database.renew_lease(now_s))
        self._try(
            "sign of life for agents",
            lambda: self._store.put(lease_key(), encode_lease(now_s), durable=False),
        )

    def _try(self, what: str, write: Callable[[], None]) -> None:
        try:
            write()
        except (StoreUnreachable, DatabaseUnwritable, OSError) as error:
            if what not in self._failing:
                why = error.message if isinstance(error, CloudgavelError) else str(error)
                self._note(f"the {what} could not be renewed, trying again: {why}")
            self._failing.add(what)
        else:
            if what in self._failing:
                self._note(f"the {what} is renewed again")
            self._failing.discard(what)
