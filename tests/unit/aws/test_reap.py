"""``cloudgavel reap``: find, ask, end, look again, tell what is left."""

import io
import json

import pytest

from cloudgavel.cli.app import run_command_line
from cloudgavel.cli.commands.reap import AwsSweeper, sweep
from cloudgavel.errors import UsageError
from cloudgavel.providers.aws.mocked.layer import Habits
from tests.unit.aws.account import RUN_ID, a_request, an_account, an_offer, settings

EAST, WEST = an_offer(), an_offer(region="us-west-2", zone="usw2-az1")
REGIONS = ("us-east-1", "us-west-2")


@pytest.fixture
def account():
    habits = Habits(shutting_down_s=12.0)
    with an_account(EAST, WEST, given=settings(regions=REGIONS), habits=habits) as made:
        made.provider.launch(a_request(EAST, token="1"))
        made.provider.launch(a_request(WEST, token="2"))
        made.provider.launch(a_request(WEST, token="3", run_id="another"))
        yield made


def swept(account, *, run_id=None, as_json=True, yes=True, slept=None):
    def sleep(seconds):
        account.advance_s(seconds)
        if slept is not None:
            slept.append(seconds)

    sweeper = AwsSweeper(account.clients, regions=REGIONS, run_id=run_id)
    return sweep([sweeper], as_json=as_json, yes=yes, sleep=sleep)


def test_everything_of_ours_is_ended_and_looked_for_until_it_is_gone(account, capsys):
    slept: list[float] = []
    assert swept(account, slept=slept) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["found"]) == 3
    assert (told["left"], told["silent"]) == ([], [])
    assert len(slept) == 3
    assert account.layer.live_ids() == []


def test_only_the_machines_of_a_run_when_it_is_named(account, capsys):
    assert swept(account, run_id=RUN_ID) == 0
    assert len(json.loads(capsys.readouterr().out)["found"]) == 2
    assert len(account.layer.live_ids()) == 1


def test_what_could_not_be_ended_is_left_and_told(account, capsys):
    account.faults.fail_next("TerminateInstances", *[("UnauthorizedOperation", 403)] * 3)
    assert swept(account, as_json=False) == 6
    out = capsys.readouterr()
    assert "3 found, 0 ended, 3 left" in out.out
    assert "UnauthorizedOperation" in out.err


def test_a_region_without_an_answer_is_not_taken_for_empty(account, capsys):
    account.faults.silent_regions.add("us-west-2")
    assert swept(account, as_json=False) == 6
    assert "no answer: cannot list the instances in us-west-2" in capsys.readouterr().out
    assert len(account.layer.live_ids()) == 2


def test_nothing_to_end_is_said(capsys):
    with an_account() as account:
        assert swept(account, as_json=False) == 0
    assert capsys.readouterr().out == "no machine of ours is left\n"


def test_nothing_is_ended_when_nobody_can_be_asked(account, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(UsageError, match="nobody can be asked"):
        swept(account, yes=False)
    assert len(account.layer.live_ids()) == 3


def test_a_cloud_that_is_not_known_is_a_usage_error(capsys):
    assert run_command_line(["reap", "--provider", "azure"]) == 2
    assert "`azure` cannot be searched" in capsys.readouterr().err


def test_without_credentials_the_command_exits_with_four(monkeypatch, tmp_path, capsys):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert run_command_line(["reap", "--yes"]) == 4
    assert "no usable AWS credentials" in capsys.readouterr().err
