"""The agent's parts that need no process."""

import os
from pathlib import Path

import pytest

from cloudgavel.agent.environment import job_environment, prepare_scratch
from cloudgavel.agent.output import LogUpload, OutputPattern, last_lines
from cloudgavel.agent.watchdog import MOST_BLIND_S, Watchdog
from cloudgavel.messages import layout
from cloudgavel.messages.orders import JobOrder, Verb
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.store import StoreUnreachable


def environment(order: JobOrder, scratch: Path, **changes: object) -> dict[str, str]:
    settings: dict[str, object] = {
        "inherited": {"PATH": "/usr/bin", "CLOUDGAVEL_STATE": "not the job's business"},
        "attempt_dir": scratch / "attempt",
        "checkpoint_dir": scratch / "attempt" / "ckpt",
        "restored_step": 7,
        "scratch": scratch,
        "one_machine": False,
    }
    return job_environment(order, **(settings | changes))  # type: ignore[arg-type]


def an_order(**changes: object) -> JobOrder:
    settings: dict[str, object] = {
        "job": "job",
        "attempt": 3,
        "verb": Verb.RUN,
        "command": "true",
        "steps_total": 10,
        "accelerator_indices": (1, 2),
    }
    return JobOrder(**(settings | changes))  # type: ignore[arg-type]


def test_a_gpu_job_sees_its_gpus_and_nothing_of_the_agents_own(tmp_path: Path) -> None:
    env = environment(an_order(), tmp_path)
    assert env["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert env["CLOUDGAVEL_RESTORED_STEP"] == "7"
    assert "CLOUDGAVEL_STATE" not in env
    assert environment(an_order(accelerator_indices=()), tmp_path)["CUDA_VISIBLE_DEVICES"] == ""


def test_a_tpu_job_sees_its_chips_and_no_gpu(tmp_path: Path) -> None:
    env = environment(an_order(platform="tpu"), tmp_path)
    assert (env["CUDA_VISIBLE_DEVICES"], env["TPU_VISIBLE_CHIPS"]) == ("", "1,2")
    assert env["PJRT_DEVICE"] == "TPU"


@pytest.mark.parametrize(
    ("addresses", "first"), [(("10.0.0.7", "10.0.0.8"), "10.0.0.7"), ((), "i-7")]
)
def test_gang_members_agree_on_where_rank_0_is(addresses, first, tmp_path: Path) -> None:
    peers = ("i-7", "i-8")
    ranks = [
        environment(
            an_order(rank=rank, world_size=2, peers=peers, peer_addresses=addresses), tmp_path
        )
        for rank in (0, 1)
    ]
    assert [env["RANK"] for env in ranks] == ["0", "1"]
    assert {env["MASTER_ADDR"] for env in ranks} == {first}
    assert len({env["MASTER_PORT"] for env in ranks}) == 1


def test_the_order_overrides_what_we_set(tmp_path: Path) -> None:
    env = environment(an_order(env={"MASTER_PORT": "1234"}), tmp_path)
    assert env["MASTER_PORT"] == "1234"


def test_the_scratch_lets_any_interpreter_find_cloudgavel_and_nothing_else(tmp_path: Path) -> None:
    prepare_scratch(tmp_path)
    prepare_scratch(tmp_path)
    assert os.listdir(tmp_path / "lib") == ["cloudgavel"]
    assert (tmp_path / "lib" / "cloudgavel" / "training").is_dir()
    assert os.access(tmp_path / "bin" / "python", os.X_OK)


def test_a_pattern_reads_whole_lines_once_and_the_last_one_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    pattern = OutputPattern(r"step (\d+)", log)
    assert pattern.newest_step() is None
    log.write_text("step 1\nstep 2\nnoise\nstep 3")
    assert pattern.newest_step() == 2
    with log.open("a") as more:
        more.write("0\n")
    assert pattern.newest_step() == 30
    assert pattern.newest_step() is None


def test_a_pattern_takes_thousands_as_people_write_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("it 12,345\nit 1_000_000\n")
    assert OutputPattern(r"it ([\d,_]+)", log).newest_step() == 1_000_000


@pytest.mark.parametrize("pattern", ["step (", "step"])
def test_a_pattern_without_a_group_is_refused(pattern: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="progress_pattern"):
        OutputPattern(pattern, tmp_path / "log")


def test_a_log_is_uploaded_whole_also_behind_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, log = FileStore(tmp_path / "store"), tmp_path / "log"
    upload = LogUpload(store, log, job="job", attempt=1, rank=0)
    upload.upload()
    log.write_bytes(b"a" * 1_500_000)
    upload.upload()

    def fail(*_: object, **__: object) -> None:
        raise StoreUnreachable("write", "log", "timed out", store.url)

    with log.open("ab") as more:
        more.write(b"b" * 10)
    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "put", fail)
        with pytest.raises(StoreUnreachable):
            upload.upload()
    assert upload.pending_bytes == 10
    upload.upload()
    chunks = [store.get(info.key) for info in store.list(layout.log_key("job", 1))]
    assert b"".join(chunks) == log.read_bytes()


def test_the_last_lines_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert last_lines(log, count=2) == ("line 9998", "line 9999")
    assert last_lines(tmp_path / "none") == ()


def test_time_without_the_store_does_not_count_for_the_watchdog_up_to_an_hour() -> None:
    watchdog = Watchdog(0.0, lease_s=300.0)
    watchdog.could_not_look(100.0)
    watchdog.could_not_look(400.0)
    assert not watchdog.expired(700.0)
    watchdog.looked(700.0)  # 100 s of silence before, 600 s that do not count
    assert not watchdog.expired(900.0)
    assert watchdog.expired(901.0)
    watchdog.could_not_look(901.0)
    assert not watchdog.expired(901.0 + MOST_BLIND_S)
    assert watchdog.expired(902.0 + MOST_BLIND_S)


def test_a_watchdog_counts_from_the_last_sign() -> None:
    watchdog = Watchdog(0.0, lease_s=10.0)
    assert not watchdog.expired(10.0)
    assert watchdog.expired(10.1)
    watchdog.saw_orders(10.1, lease_s=5.0)
    assert not watchdog.expired(15.0)
    watchdog.saw_lease(15.0, 99.0)
    watchdog.saw_lease(19.0, 99.0)  # not renewed: no sign
    assert watchdog.expired(20.1)
