"""The world of a run on clouds: code in the store once, orders that name it, clear refusals."""

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import CloudSpec
from cloudgavel.messages.orders import Orders
from cloudgavel.objects.files import FileStore
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.runtime.cloud_world import PackedWorkdirs, open_clouds, packed_workdirs
from cloudgavel.runtime.orders import job_orders
from tests.unit.runtime.scripted import START_S, Stage, a_job, a_run, an_offer


@pytest.fixture
def run(tmp_path):
    code = tmp_path / "code"
    (code / "ckpt").mkdir(parents=True)
    (code / "train.py").write_text("print(1)")
    (code / "ckpt" / "state").write_text("old")
    return a_run(a_job("a", workdir=str(code)), a_job("b", workdir=str(code)))


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


def test_code_is_packed_once_and_stays_what_it_was(run, store, tmp_path):
    packed = packed_workdirs(run, store)
    (key,) = packed.values()
    assert key.startswith("code/") and store.stamp(key) is not None
    (tmp_path / "code" / "train.py").write_text("print(2)")
    assert packed_workdirs(run, store) == packed
    assert len([each for each in store.list("code/") if each.key.endswith(".tar.gz")]) == 1


def test_checkpoints_do_not_travel_with_the_code(run, store, tmp_path):
    (before,) = packed_workdirs(run, store).values()
    (tmp_path / "code" / "ckpt" / "state").write_text("new")
    other = FileStore(tmp_path / "another")
    assert list(packed_workdirs(run, other).values()) == [before]


def test_a_directory_that_came_later_is_packed_too(run, store, tmp_path):
    first = packed_workdirs(run, store)
    later = tmp_path / "later"
    later.mkdir()
    (later / "more.py").write_text("")
    both = packed_workdirs(a_run(*run.jobs, a_job("c", workdir=str(later))), store)
    assert both.items() > first.items()
    assert packed_workdirs(run, store) == both


def test_orders_name_the_archive_and_nothing_else_changes():
    stage = Stage(a_run(a_job("a", workdir="/here")), [an_offer()])
    stage.run_until(400)
    (machine,) = stage.loop.state.live_instances
    jobs = job_orders(stage.loop.state, machine.instance_id, stage.settings, paced=False)
    sent = []

    class Channel:
        def send(self, orders):
            sent.append(orders)

        def reports(self):
            return {"x": None}

    channel = PackedWorkdirs(Channel(), {"/here": "code/1.tar.gz"})
    orders = Orders(
        run_id="run-1", instance_id=machine.instance_id, sequence=3, lease_s=300.0, jobs=jobs
    )
    channel.send(orders)
    (got,) = sent
    assert [job.workdir for job in orders.jobs] == ["/here"]
    assert [job.workdir for job in got.jobs] == ["code/1.tar.gz"]
    assert (got.sequence, got.instance_id) == (3, machine.instance_id)
    assert channel.reports() == {"x": None}


@pytest.mark.parametrize("provider", ["aws", "gcp"])
def test_a_store_that_machines_cannot_reach_is_refused_before_anything(provider, run, store):
    cloud = CloudSpec(provider=provider, project="mine")
    with pytest.raises(UsageError, match="cannot reach this store"):
        open_clouds(
            a_run(*run.jobs, clouds=(cloud,)),
            store=store,
            catalog=bundled_catalog(),
            environment={},
            now_s=lambda: START_S,
        )
