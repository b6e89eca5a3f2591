"""The start-up script, run by a real shell among stand-ins for a machine's commands."""

import os
import stat
import subprocess
import sys

import pytest

from cloudgavel.messages import layout
from cloudgavel.messages.codec import decode_report, encode_orders
from cloudgavel.messages.orders import Orders
from cloudgavel.objects.files import FileStore
from cloudgavel.providers.aws.user_data import SCRATCH, start_script
from cloudgavel.providers.bundle import AgentSource, agent_bundle
from tests.unit.aws.account import settings

INSTANCE_ID = "i-0123456789abcdef0"
CURL = """
case "$*" in
  *latest/api/token*) echo a-token ;;
  *meta-data/instance-id*) case "$*" in *a-token*) echo %(instance)s ;; *) exit 22 ;; esac ;;
  *meta-data/placement/region*) echo eu-west-1 ;;
  *) while [ "$1" != -o ]; do shift; done; cp %(archive)s "$2" ;;
esac
"""


class Machine:
    """Stand-ins for what the script calls; what it did is in ``log``."""

    def __init__(self, root, archive: bytes):
        self.root = root
        self.scratch = root / "scratch"
        self.bin = root / "bin"
        self.bin.mkdir()
        self.log = root / "log"
        self.log.write_text("")
        (root / "agent.tar.gz").write_bytes(archive)
        words = {"instance": INSTANCE_ID, "archive": root / "agent.tar.gz"}
        self.command("curl", CURL % words)
        self.command("shutdown", f'echo "shutdown $*" >> {self.log}')
        self.command("tee", "cat")
        self.command("sleep", "exit 0")
        (self.bin / "python3").symlink_to(sys.executable)

    def command(self, name, body):
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, script):
        own = script.replace(SCRATCH, str(self.scratch))
        return subprocess.run(
            ["bash", "-c", own],
            env={"PATH": f"{self.bin}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def did(self):
        return self.log.read_text().splitlines()


@pytest.fixture(scope="module")
def bundle():
    return agent_bundle(with_s3=True)


@pytest.fixture
def machine(tmp_path, bundle):
    return Machine(tmp_path, bundle.data)


def a_script(store, bundle, **changes):
    source = AgentSource(url="https://example.org/agent?sig=1&x=2", sha256=bundle.sha256)
    return start_script(settings(store_url=store.url, agent=source, **changes), run_id="quick")


def test_the_agent_serves_this_very_machine_and_its_end_is_the_machines(machine, bundle, tmp_path):
    store = FileStore(tmp_path / "store")
    orders = Orders(
        run_id="quick", instance_id=INSTANCE_ID, sequence=1, jobs=(), lease_s=300.0, power_off=True
    )
    store.put(layout.orders_key(INSTANCE_ID), encode_orders(orders))
    done = machine.run(a_script(store, bundle, lifetime_s=3000.0))
    report = decode_report(store.get(layout.report_key(INSTANCE_ID)))
    assert (report.run_id, report.instance_id, report.ending) == ("quick", INSTANCE_ID, True)
    assert machine.did() == ["shutdown -h +60", "shutdown -h now"]
    assert "the agent ended with 0" in done.stdout


def test_an_agent_that_is_not_the_one_meant_is_never_started(machine, bundle, tmp_path):
    store = FileStore(tmp_path / "store")
    (machine.root / "agent.tar.gz").write_bytes(b"something else")
    done = machine.run(a_script(store, bundle))
    assert done.returncode == 1
    assert "the agent could not be fetched" in done.stdout
    assert store.list("") == []
    assert machine.did()[-1] == "shutdown -h now"


def test_a_machine_without_metadata_ends_itself(machine, bundle, tmp_path):
    machine.command("curl", "exit 7")
    done = machine.run(a_script(FileStore(tmp_path / "store"), bundle))
    assert "no instance metadata" in done.stdout
    assert machine.did()[-1] == "shutdown -h now"
