"""The start-up script, run for real: a fake cloud, a real agent, and stubs for the shutdown."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudgavel.messages import layout
from cloudgavel.messages.codec import decode_report, encode_orders
from cloudgavel.messages.orders import Orders
from cloudgavel.objects.gcs import GcsStore
from cloudgavel.providers.bundle import AgentSource, agent_bundle, upload_agent
from cloudgavel.providers.gcp.mocked.server import serve_metadata
from cloudgavel.providers.gcp.startup import MOST_BYTES, download_url, start_script
from tests.unit.gcp.project import RUN_ID, a_project, a_request, a_slice, an_offer, settings

STUB = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLED"\n'


class Machine:
    """What a rented machine has: a shell, Python, metadata; and a note of who would end it."""

    def __init__(self, tmp_path: Path, *, without: tuple[str, ...] = ()) -> None:
        self.scratch = tmp_path / "scratch"
        self.called = tmp_path / "called"
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        for name in ("shutdown", "systemd-run", "apt-get", "sleep"):
            self._stub(name, STUB if name not in without else "#!/bin/sh\nexit 1\n")
        self._stub("python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')

    def _stub(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def run(self, script: str, metadata: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "CALLED": str(self.called),
            "CLOUDGAVEL_SCRATCH": str(self.scratch),
            "GCE_METADATA_HOST": metadata,
            "HOME": str(self.scratch),
        }
        return subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=120
        )

    def calls(self) -> list[str]:
        return self.called.read_text().splitlines() if self.called.exists() else []


def the_store(project) -> GcsStore:
    return GcsStore("runs", "quickstart", endpoint=project.endpoint)


@pytest.mark.parametrize("offer", [an_offer(), a_slice()], ids=["machine", "slice"])
def test_a_machine_starts_its_agent_and_deletes_itself_when_that_ends(tmp_path, offer):
    with a_project(offer) as project:
        store = the_store(project)
        project.settings = settings(store_url=store.url, agent=upload_agent(store))
        provider = project.another_process()
        name = provider.launch(a_request(offer)).instance_id
        store.put(
            layout.orders_key(name),
            encode_orders(
                Orders(run_id=RUN_ID, instance_id=name, sequence=1, lease_s=60.0, power_off=True)
            ),
        )
        machine = Machine(tmp_path)
        with serve_metadata(project.cloud, name) as metadata:
            ran = machine.run(project.cloud.machine(name).start_script, metadata)
        log = machine.scratch / "agent.log"
        assert "the agent ended with 0" in ran.stdout, (
            ran,
            log.read_text() if log.exists() else "",
        )
        report = decode_report(store.get(layout.report_key(name)))
        assert report.instance_id == name
        assert project.cloud.status(name) is None
        assert machine.calls()[-1] == "shutdown -h now"


def test_the_end_is_set_before_anything_can_fail(tmp_path):
    with a_project() as project:
        given = settings(lifetime_s=3_600.0, agent=AgentSource(url="gs://runs/none", sha256="0"))
        project.settings = given
        name = project.another_process().launch(a_request(an_offer())).instance_id
        machine = Machine(tmp_path)
        with serve_metadata(project.cloud, name) as metadata:
            ran = machine.run(project.cloud.machine(name).start_script, metadata)
        assert "could not be fetched" in ran.stdout
        assert machine.calls()[:2] == [
            "shutdown -h +70",
            f"systemd-run --on-active=65m /bin/bash {machine.scratch}/end.sh",
        ]
        assert project.cloud.status(name) is None


def test_without_systemd_the_machines_own_timer_is_shutdown(tmp_path):
    given = settings(lifetime_s=3_600.0, agent=AgentSource(url="http://127.0.0.1:9/a", sha256="0"))
    with a_project(given=given) as project:
        name = project.provider.launch(a_request(an_offer())).instance_id
        machine = Machine(tmp_path, without=("systemd-run",))
        with serve_metadata(project.cloud, name) as metadata:
            machine.run(project.cloud.machine(name).start_script, metadata)
        assert machine.calls()[:2] == ["shutdown -h +70", "shutdown -h +65"]


def test_an_agent_that_is_not_the_one_is_not_run(tmp_path):
    with a_project() as project:
        store = the_store(project)
        source = upload_agent(store)
        store.put(source.url.partition("quickstart/")[2], b"something else")
        project.settings = settings(store_url=store.url, agent=source)
        name = project.another_process().launch(a_request(an_offer())).instance_id
        machine = Machine(tmp_path)
        with serve_metadata(project.cloud, name) as metadata:
            ran = machine.run(project.cloud.machine(name).start_script, metadata)
        assert "could not be fetched" in ran.stdout
        assert not (machine.scratch / "agent").exists()


def test_a_second_start_leaves_the_first_agent_alone(tmp_path):
    import fcntl

    with a_project() as project:
        name = project.provider.launch(a_request(an_offer())).instance_id
        machine = Machine(tmp_path)
        machine.scratch.mkdir()
        with (machine.scratch / "start.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with serve_metadata(project.cloud, name) as metadata:
                ran = machine.run(project.cloud.machine(name).start_script, metadata)
        assert ran.returncode == 0
        assert project.cloud.calls["objects.get"] == 0
        assert project.cloud.status(name) is not None


def test_the_script_is_small_and_holds_nothing_secret_or_unquoted():
    script = start_script(
        settings(store_url="gs://b/'; rm -rf /; '"),
        run_id="run $(id)",
        instance_id="cloudgavel-vm-1",
        zone="us-central1-a",
        is_tpu=False,
    )
    assert len(script.encode()) < MOST_BYTES / 3
    assert "RUN_ID='run $(id)'" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_addresses_of_objects_are_escaped():
    assert download_url("gs://b/a/b c") == (
        "https://storage.googleapis.com/storage/v1/b/b/o/a%2Fb%20c?alt=media"
    )
    assert download_url("https://x/y?z") == "https://x/y?z"


def test_equal_installations_make_equal_archives_that_are_small():
    first, second = agent_bundle(with_s3=False), agent_bundle(with_s3=False)
    assert first == second
    assert len(first.data) < 1 << 20


def test_metadata_tells_of_a_preemption_and_a_long_poll_of_its_beginning():
    import http.client

    def ask(host: str, path: str, **headers: str) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request("GET", f"/computeMetadata/v1/instance/{path}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.getheader("ETag") or ""

    google = {"Metadata-Flavor": "Google"}
    with a_project() as project:
        name = project.provider.launch(a_request(an_offer())).instance_id
        with serve_metadata(project.cloud, name) as host:
            assert ask(host, "preempted")[0] == 403
            assert ask(host, "nonsense", **google)[0] == 404
            assert ask(host, "name", **google)[1] == name
            _, said, tag = ask(host, "preempted", **google)
            assert said == "FALSE"
            assert ask(host, "maintenance-event", **google)[1] == "NONE"
            began_s = time.monotonic()
            wait = f"preempted?wait_for_change=true&timeout_sec=0.2&last_etag={tag}"
            assert ask(host, wait, **google)[1] == "FALSE"
            assert time.monotonic() - began_s >= 0.15
            project.cloud.interrupt(name)
            wait = f"preempted?wait_for_change=true&timeout_sec=60&last_etag={tag}"
            assert ask(host, wait, **google)[1] == "TRUE"


def test_nothing_of_this_machine_is_needed_by_the_archive(tmp_path):
    """The archive alone runs the agent: no site-packages, no checkout."""
    import io
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(agent_bundle(with_s3=False).data)) as archive:
        archive.extractall(tmp_path, filter="data")
    ran = subprocess.run(
        [sys.executable, "-S", "-m", "cloudgavel.agent", "--help"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "--power-off-at" in ran.stdout
