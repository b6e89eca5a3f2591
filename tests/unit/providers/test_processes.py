"""What runs on a rehearsed machine ends with it, also what hides."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudgavel.process_tree import Family, process_table
from cloudgavel.providers.local.processes import end_processes_of, job_processes_of, start_agent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")


def is_running(pid: int) -> bool:
    process = process_table().get(pid)
    return process is not None and not process.gone


def a_machine(tmp_path: Path, stray: str) -> "tuple[Path, subprocess.Popen[bytes], int]":
    """Something like an agent, and a process below it without its environment and session."""
    scratch = tmp_path.resolve() / "machines" / "i-1"
    (scratch / "jobs" / "a").mkdir(parents=True)
    text = f"env -i setsid sleep 300 {stray} & echo $! > stray.new; mv stray.new stray; wait"
    child = start_agent(["/bin/sh", "-c", text, "sh"], scratch, None)
    ends_s = time.monotonic() + 20.0
    while not (scratch / "stray").exists():
        assert time.monotonic() < ends_s
    return scratch, child, int((scratch / "stray").read_text())


def test_a_machines_end_ends_what_has_no_mark_and_no_session_of_it(tmp_path: Path) -> None:
    scratch, child, stray = a_machine(tmp_path, "> /dev/null 2>&1")
    assert is_running(stray)
    end_processes_of(scratch, child)
    assert not is_running(stray)
    assert child.returncode is not None


def test_what_a_dead_agent_left_is_known_by_where_it_writes(tmp_path: Path) -> None:
    scratch, child, stray = a_machine(tmp_path, "> jobs/a/output.log 2>&1")
    child.kill()
    child.wait()
    assert is_running(stray)
    assert stray in job_processes_of(scratch)
    end_processes_of(scratch)
    assert not is_running(stray)


def test_a_family_is_never_ones_own_session_nor_a_later_process_of_the_same_number() -> None:
    child = subprocess.Popen(["sleep", "300"])
    try:
        family = Family()
        table = process_table()
        assert family.living(table, [child.pid]) == {child.pid}
        assert os.getpid() not in family.living(table, [])
    finally:
        child.kill()
        child.wait()
    assert family.living(process_table(), []) == set()
