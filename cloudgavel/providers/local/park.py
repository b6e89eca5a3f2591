"""All machines of a rehearsal, and the sign of life that their agents wait for."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cloudgavel.clock import Clock
from cloudgavel.messages import layout
from cloudgavel.messages.codec import encode_lease
from cloudgavel.objects.store import ObjectStore, StoreUnreachable
from cloudgavel.providers.local.machines import Machine
from cloudgavel.providers.local.processes import agents_of, job_processes_of

log = logging.getLogger("cloudgavel.rehearsal")

_LEASE_EVERY_S = 1.0


class MachinePark:
    """One directory per machine below ``directory``; agents are started with ``agent_command``.

    ``environment`` ``None`` = agents inherit this process's. ``clock`` is the real one.
    ``while_waiting`` is called with each renewal of the lease.
    """

    def __init__(
        self,
        directory: Path,
        *,
        run_id: str,
        store: ObjectStore,
        agent_command: Sequence[str],
        environment: Mapping[str, str] | None,
        clock: Clock,
        while_waiting: Callable[[], None] | None = None,
    ) -> None:
        self._directory = directory
        self._run_id = run_id
        self._store = store
        self._agent_command = tuple(agent_command)
        self._environment = environment
        self._clock = clock
        self._while_waiting = while_waiting
        self._machines: dict[str, Machine] = {}
        self._switched_off: set[str] = set()
        self._lease_at_s: float | None = None
        self._lease_failing = False

    def machine(self, instance_id: str) -> Machine:
        """Return a machine, attached to the agent that an earlier controller may have started."""
        if instance_id not in self._machines:
            machine = Machine(
                instance_id,
                run_id=self._run_id,
                store=self._store,
                scratch=self._directory / instance_id,
            )
            machine.adopt()
            self._machines[instance_id] = machine
        return self._machines[instance_id]

    def start(self, instance_id: str) -> None:
        """Start a machine's agent unless there is one."""
        self.machine(instance_id).start(self._agent_command, self._environment)

    def find_earlier(self) -> None:
        """Attach to every machine that this directory ever had."""
        for scratch in self._scratch_directories():
            self.machine(scratch.name)

    def switch_off(self, is_gone: Callable[[str], bool]) -> None:
        """End whatever still runs on machines that are gone."""
        for instance_id, machine in self._machines.items():
            if instance_id not in self._switched_off and is_gone(instance_id):
                machine.end()
                self._switched_off.add(instance_id)

    def processes(self) -> Mapping[str, list[int]]:
        """Return the pids that live for each instance; empty when all are switched off."""
        found = {}
        for scratch in self._scratch_directories():
            pids = sorted({*agents_of(scratch), *job_processes_of(scratch)})
            if pids:
                found[scratch.name] = pids
        return found

    def renew_lease(self) -> None:
        """Show the agents that somebody is in charge; at most once a second.

        A store that cannot be written is told once and tried again at the next call.
        """
        now_s = self._clock.now_s()
        if self._lease_at_s is None or abs(now_s - self._lease_at_s) >= _LEASE_EVERY_S:
            self._lease_at_s = now_s
            try:
                self._store.put(layout.lease_key(), encode_lease(now_s), durable=False)
            except (StoreUnreachable, OSError) as error:
                # Agents wait for longer than a disk is full for a moment.
                if not self._lease_failing:
                    log.warning("the agents' lease is not renewed, trying again: %s", error)
                self._lease_failing = True
            else:
                self._lease_failing = False
            if self._while_waiting is not None:
                self._while_waiting()

    def _scratch_directories(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(path for path in self._directory.iterdir() if path.is_dir())
