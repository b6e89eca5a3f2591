"""``cloudgavel pull`` on runs whose store is a directory, S3 or Cloud Storage."""

import json
import os
from pathlib import Path

import pytest

from cloudgavel.cli.app import run_command_line
from cloudgavel.cli.transfer import Transfer
from cloudgavel.messages import layout
from cloudgavel.objects.manifest import commit_checkpoint
from cloudgavel.objects.open import open_store
from cloudgavel.objects.store import ObjectStore
from cloudgavel.providers.gcp.mocked.cloud import FakeGcp
from cloudgavel.providers.gcp.mocked.server import serve_cloud
from cloudgavel.runtime.begin import begin_run
from cloudgavel.runtime.directory import RunDirectory
from cloudgavel.store import events as ev
from tests.unit.runtime.scripted import a_job, a_run, an_offer


def a_saved_run(tmp_path: Path, store_url: str | None = None) -> tuple[RunDirectory, ObjectStore]:
    run = a_run(a_job("a"), a_job("b"), store=store_url)
    begun = begin_run(tmp_path / "state", run, budget_usd=9.0, now_s=1e9)
    database = begun.directory.open_database()
    offer = an_offer()
    database.append(
        [
            ev.LaunchIntended(
                at_s=1e9, token="t", offers=(offer,), for_jobs=("a",), reason="r", round_number=1
            ),
            ev.LaunchSucceeded(
                at_s=1e9, token="t", instance_id="i-1", offer=offer, launched_at_s=1e9,
                price_usd_per_hour=3.6,
            ),
            ev.AttemptStarted(
                at_s=1e9, job="a", attempt=1, instance_ids=("i-1",), request_label="V100",
                accelerator_indices=(0,), save_every_s=60.0, reason="r",
            ),
        ]
    )  # fmt: skip
    database.close()
    store = open_store(begun.directory.store_url(store_url))
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.bin").write_bytes(bytes(range(256)) * 40)
    commit_checkpoint(store, "a", 640, 1, source)
    store.put(layout.log_key("a", 1) + "rank-0000-000001.log", b"did 640\n")
    return begun.directory, store


def pull(tmp_path: Path, *arguments: str) -> int:
    return run_command_line(
        ["pull", *arguments, "--state", str(tmp_path / "state"), "--to", str(tmp_path / "to")]
    )


def test_the_checkpoint_and_the_output_are_here_and_described(tmp_path, capsys):
    a_saved_run(tmp_path)
    assert pull(tmp_path, "a") == 0
    said = capsys.readouterr()
    assert "checkpoint at step 640 of 1,000, 1 file, 10.0 KiB" in said.out
    assert "10.0 KiB to fetch" in said.err
    assert (tmp_path / "to" / "checkpoint-640" / "model.bin").stat().st_size == 10240
    assert (tmp_path / "to" / "logs" / "attempt-1.log").read_text() == "did 640\n"
    assert pull(tmp_path, "a", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "cloudgavel/pull"
    assert (document["step"], document["attempt"]) == (640, 1)
    assert document["checkpoint"][0]["was_there"] is True


def test_it_refuses_in_words(tmp_path, capsys):
    a_saved_run(tmp_path)
    for arguments, code, words in [
        (("nobody",), 2, "there is no job `nobody`"),
        (("b",), 2, "b has no checkpoint yet"),
        (("a", "--checkpoint", "641"), 2, "no checkpoint at step 641"),
        (("a", "--checkpoint", "newest"), 2, "`latest`, `none` or a step"),
    ]:
        assert pull(tmp_path, *arguments) == code
        assert words in capsys.readouterr().err
    mine = tmp_path / "to" / "checkpoint-640" / "model.bin"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert pull(tmp_path, "a") == 1
    assert "--force" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert pull(tmp_path, "a", "--force", "--checkpoint", "640") == 0
    assert pull(tmp_path, "b", "--checkpoint", "none") == 0
    assert "has printed nothing yet" in capsys.readouterr().out


def test_from_s3(tmp_path, monkeypatch):
    moto = pytest.importorskip("moto")
    import boto3

    for name, value in {
        "AWS_ACCESS_KEY_ID": "mocked",
        "AWS_SECRET_ACCESS_KEY": "mocked",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    with moto.mock_aws():
        boto3.client("s3").create_bucket(Bucket="runs")
        a_saved_run(tmp_path, "s3://runs/mine")
        assert pull(tmp_path, "a") == 0
    assert (tmp_path / "to" / "checkpoint-640" / "model.bin").stat().st_size == 10240
    assert sorted(os.listdir(tmp_path / "to" / "checkpoint-640")) == ["model.bin"]


def test_from_cloud_storage(tmp_path):
    cloud = FakeGcp(now_s=lambda: 1e9, offers=())
    cloud.buckets.add("runs")
    with serve_cloud(cloud) as endpoint:
        a_saved_run(tmp_path, f"gs://runs/mine?endpoint={endpoint}")
        assert pull(tmp_path, "a") == 0
    assert sorted(os.listdir(tmp_path / "to" / "checkpoint-640")) == ["model.bin"]


def test_a_long_transfer_says_how_far_it_is(tmp_path, capsys):
    (tmp_path / "..f.pulling.0123.part").write_bytes(b"x" * 2048)
    transfer = Transfer("a")
    assert transfer.words() is None
    transfer.begins(tmp_path / ".f.pulling", 4096, 8192)
    words = transfer.words()
    assert words is not None
    assert words.startswith("a: 2.0 KiB of 8.0 KiB, ")
    assert words.endswith(" left")
