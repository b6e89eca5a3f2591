"""``cloudgavel check``: each line passes or says what to do."""

import json

import pytest

from cloudgavel.cli.app import run_command_line
from cloudgavel.cli.commands.check import check_store
from cloudgavel.documents.check import CheckStatus
from cloudgavel.objects.files import FileStore
from cloudgavel.providers.aws.checks import check_aws
from tests.unit.aws.account import a_limit, an_account


def checked(account, **changes):
    import time

    return check_aws(
        account.clients,
        **{
            "regions": ["us-east-1"],
            "offers": account.offers,
            "now_s": time.time,
            "instance_profile": "cloudgavel-agent",
            **changes,
        },
    )


def of(lines, subject, status=None):
    return [line for line in lines if line.subject == subject and status in (None, line.status)]


def test_an_account_that_is_ready_passes_and_nothing_is_created():
    spot = a_limit(
        capacity_type="spot", title="All G and VT Spot Instance Requests", code="L-3819A6DF"
    )
    with an_account(limits=[a_limit(), spot]) as account:
        lines = checked(account)
        assert account.layer.live_ids() == []
    assert [line for line in lines if line.status is not CheckStatus.PASSED] == []
    assert "arn:aws:" in of(lines, "credentials")[0].detail
    assert {line.detail for line in of(lines, "permission")} >= {
        "ec2:RunInstances",
        "ec2:TerminateInstances",
    }


def test_without_credentials_there_is_one_line_with_the_way_out(monkeypatch):
    from botocore.client import BaseClient
    from botocore.exceptions import NoCredentialsError

    with an_account() as account:

        def refuse(self, operation_name, api_params):
            raise NoCredentialsError

        monkeypatch.setattr(BaseClient, "_make_api_call", refuse)
        (line,) = checked(account)
    assert (line.subject, line.status) == ("credentials", CheckStatus.FAILED)
    assert "aws configure" in (line.hint or "")


def test_a_denied_call_names_the_action_and_the_policy():
    with an_account() as account:
        account.faults.denied.add("RunInstances")
        (line,) = of(checked(account), "permission", CheckStatus.FAILED)
    assert line.detail == "ec2:RunInstances denied"
    assert "docs/how-to/aws.md" in (line.hint or "")


def test_a_quota_of_zero_says_what_to_ask_for():
    with an_account(limits=[a_limit(vcpus=0.0)]) as account:
        lines = of(checked(account), "quota", CheckStatus.WARNING)
    assert any("L-DB2E81BA" in (line.hint or "") for line in lines)
    assert any("0 vCPUs of Running On-Demand G and VT" in line.detail for line in lines)


def test_quotas_that_may_not_be_read_are_a_warning():
    with an_account() as account:
        account.faults.denied.add("ListServiceQuotas")
        (line,) = of(checked(account), "quota")
    assert line.status is CheckStatus.WARNING
    assert "servicequotas:ListServiceQuotas" in (line.hint or "")


def test_a_clock_two_minutes_off_is_told_and_a_worse_one_fails():
    import time

    with an_account() as account:
        (line,) = of(checked(account, now_s=lambda: time.time() + 120.0), "clock")
        assert line.status is CheckStatus.WARNING
        assert line.detail.startswith(("119 s", "120 s", "121 s"))
        (line,) = of(checked(account, now_s=lambda: time.time() - 600.0), "clock")
        assert line.status is CheckStatus.FAILED


def test_a_region_that_is_not_enabled_is_told():
    with an_account() as account:
        ec2 = account.clients.client("ec2", "us-east-1")
        everything = ec2.describe_regions
        ec2.describe_regions = lambda **asked: {
            "Regions": [
                each for each in everything(**asked)["Regions"] if each["RegionName"] != "eu-west-1"
            ]
        }
        (line,) = of(checked(account, regions=["eu-west-1"]), "region")
    assert line.status is CheckStatus.FAILED


def test_a_directory_is_a_store_that_passes(tmp_path):
    (line,) = check_store(FileStore(tmp_path / "store"))
    assert line.status is CheckStatus.PASSED
    assert FileStore(tmp_path / "store").list("") == []


def test_a_store_that_cannot_be_written_fails_in_words(tmp_path):
    (tmp_path / "store").write_text("a file where the directory should be")
    (line,) = check_store(FileStore(tmp_path / "store"))
    assert line.status is CheckStatus.FAILED


def test_a_store_without_conditions_is_refused(tmp_path):
    class Forgetful(FileStore):
        def put_if_absent(self, key, data):
            self.put(key, data)
            return True

    (line,) = check_store(Forgetful(tmp_path / "store"))
    assert line.status is CheckStatus.FAILED
    assert "conditional" in line.detail


def test_the_command_prints_the_lines_and_exits_accordingly(tmp_path, capsys):
    url = (tmp_path / "store").as_uri()
    assert run_command_line(["check", "--store", url, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "cloudgavel/check"
    assert [line["status"] for line in document["lines"]] == ["passed"]
    assert run_command_line(["check", "--store", url]) == 0
    assert "1 ok, 0 to look at, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check"], "nothing to check"),
        (["check", "--provider", "azure"], "`azure` cannot be checked"),
        (["check", "--provider", "aws", "--region", "us-east-11"], "no region `us-east-11`"),
    ],
)
def test_what_cannot_be_checked_is_a_usage_error(arguments, said, capsys):
    assert run_command_line(arguments) == 2
    assert said in capsys.readouterr().err


def test_the_command_without_credentials_exits_with_four(monkeypatch, tmp_path, capsys):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert run_command_line(["check", "--provider", "aws", "--region", "us-east-1"]) == 4
    out = capsys.readouterr().out
    assert "FAIL" in out
    assert "aws configure" in out
