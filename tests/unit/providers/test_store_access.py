"""Stores in the other cloud: what machines are told, what is refused, what `check` says of it."""

import contextlib
import json
import subprocess

import pytest

from cloudgavel.documents.check import CheckStatus
from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import CloudSpec
from cloudgavel.objects.keyless import AUDIENCE
from cloudgavel.objects.open import open_store
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.providers.aws import user_data
from cloudgavel.providers.aws.assembly import aws_settings
from cloudgavel.providers.gcp import startup
from cloudgavel.providers.gcp.assembly import gcp_settings
from cloudgavel.providers.gcp.mocked.identity import account_id
from cloudgavel.providers.store_access import (
    ACCOUNT_VARIABLE,
    PROVIDER_VARIABLE,
    ROLE_VARIABLE,
    is_elsewhere,
    store_url_on_aws,
    store_url_on_google,
)
from cloudgavel.providers.store_checks import check_federation, check_of_store, check_role
from tests.unit.aws import account as aws
from tests.unit.gcp import project as google

ROLE = "arn:aws:iam::123456789012:role/cloudgavel-agent"
PROVIDER = "projects/1/locations/global/workloadIdentityPools/cloudgavel/providers/aws"
ENVIRONMENT = {
    ROLE_VARIABLE: ROLE,
    PROVIDER_VARIABLE: PROVIDER,
    ACCOUNT_VARIABLE: google.ACCOUNT,
    "CLOUDGAVEL_AWS_INSTANCE_PROFILE": "cloudgavel-agent",
}


def without(*names):
    return {name: value for name, value in ENVIRONMENT.items() if name not in names}


def test_a_store_in_ones_own_cloud_is_as_it_was_written():
    assert store_url_on_aws("s3://b/runs/x", {}) == "s3://b/runs/x"
    assert store_url_on_google("gs://b/runs/x", {}) == "gs://b/runs/x"
    assert not is_elsewhere("gs://b/runs/x?endpoint=http://127.0.0.1:1")


def test_a_store_in_the_other_cloud_says_who_uses_it_and_opens():
    s3 = store_url_on_google("s3://b/runs/x", ENVIRONMENT)
    gs = store_url_on_aws("gs://b/runs/x?endpoint=http://127.0.0.1:1", ENVIRONMENT)
    assert s3 == f"s3://b/runs/x?role={ROLE}"
    assert gs == (
        f"gs://b/runs/x?endpoint=http://127.0.0.1:1&provider={PROVIDER}&account={google.ACCOUNT}"
    )
    for url in (s3, gs):
        assert is_elsewhere(url)
        assert open_store(url).url == url


@pytest.mark.parametrize(
    ("cloud", "store", "environment", "said"),
    [
        ("gcp", "s3://b/x", without(ROLE_VARIABLE), f"{ROLE_VARIABLE} is not set"),
        ("gcp", "s3://b/x", without(ACCOUNT_VARIABLE), f"{ACCOUNT_VARIABLE} is not set"),
        ("gcp", "s3://b/x", {**ENVIRONMENT, ROLE_VARIABLE: "agent"}, "not the ARN of a role"),
        ("gcp", "file:///x", ENVIRONMENT, "cannot reach this store"),
        ("aws", "gs://b/x", without(PROVIDER_VARIABLE), f"{PROVIDER_VARIABLE} is not set"),
        ("aws", "gs://b/x", without(ACCOUNT_VARIABLE), f"{ACCOUNT_VARIABLE} is not set"),
        ("aws", "gs://b/x", {**ENVIRONMENT, PROVIDER_VARIABLE: "aws"}, "not the name of"),
        ("aws", "gs://b/x", without("CLOUDGAVEL_AWS_INSTANCE_PROFILE"), "PROFILE is not set"),
        ("aws", "none", ENVIRONMENT, "cannot reach this store"),
    ],
)
def test_without_a_way_to_the_store_nothing_is_made(cloud, store, environment, said):
    make = {"aws": aws_settings, "gcp": gcp_settings}[cloud]
    with pytest.raises(UsageError, match=said):
        make(
            CloudSpec(provider=cloud, project="p", regions=()),
            catalog=Catalog(offers=(google.an_offer(), aws.an_offer())),
            store_url=store,
            agent=google.AGENT,
            environment=environment,
        )


def scripts(url_on_aws: str, url_on_google: str) -> list[tuple[str, int]]:
    on_aws = user_data.start_script(aws.settings(store_url=url_on_aws), run_id="quick")
    on_google = startup.start_script(
        google.settings(store_url=url_on_google),
        run_id="quick",
        instance_id="cloudgavel-vm-1",
        zone="us-central1-a",
        is_tpu=False,
    )
    return [(on_aws, user_data.MOST_BYTES), (on_google, startup.MOST_BYTES)]


def test_start_scripts_carry_the_way_across_only_when_needed_and_stay_small():
    own = scripts("s3://b/x", "gs://b/x")
    across = scripts(
        store_url_on_aws("gs://b/x", ENVIRONMENT), store_url_on_google("s3://b/x", ENVIRONMENT)
    )
    for (short, _), (long, most) in zip(own, across, strict=True):
        assert "base64 -d" not in short
        assert "base64 -d" in long
        assert len(long.encode()) < most * 0.6, len(long.encode())
        checked = subprocess.run(["bash", "-n"], input=long, text=True, check=False)
        assert checked.returncode == 0


# -- check ------------------------------------------------------------------------------------


def trust(number, **changes):
    conditions = {
        "accounts.google.com:aud": number,
        "accounts.google.com:sub": number,
        "accounts.google.com:oaud": AUDIENCE,
    } | changes
    statement = {
        "Effect": "Allow",
        "Principal": {"Federated": "accounts.google.com"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {"StringEquals": {k: v for k, v in conditions.items() if v is not None}},
    }
    ec2 = {
        "Effect": "Allow",
        "Principal": {"Service": "ec2.amazonaws.com"},
        "Action": "sts:AssumeRole",
    }
    return {"Version": "2012-10-17", "Statement": [ec2, statement]}


@contextlib.contextmanager
def both(policy=None):
    with aws.an_account() as account, google.a_project() as project:
        iam = account.clients.client("iam", "us-east-1")
        if policy is not None:
            iam.create_role(
                RoleName="cloudgavel-agent", AssumeRolePolicyDocument=json.dumps(policy)
            )
        yield account.clients, project.clients, project.cloud


NUMBER = account_id(google.ACCOUNT)


@pytest.mark.parametrize(
    ("policy", "status", "said"),
    [
        (trust(NUMBER), CheckStatus.PASSED, f"trusts {google.ACCOUNT}"),
        (trust("117"), CheckStatus.FAILED, f"does not trust {google.ACCOUNT}"),
        (
            trust(NUMBER, **{"accounts.google.com:oaud": None}),
            CheckStatus.FAILED,
            "does not trust",
        ),
        (
            trust(None),
            CheckStatus.FAILED,
            "lets in every account of Google",
        ),
        ({"Version": "2012-10-17", "Statement": []}, CheckStatus.FAILED, "does not trust"),
        (None, CheckStatus.FAILED, "not found"),
    ],
)
def test_a_role_is_right_only_when_it_trusts_this_account_and_no_other(policy, status, said):
    with both(policy) as (on_aws, on_google, _):
        (line,) = check_role(on_aws, on_google, role_arn=ROLE, account=google.ACCOUNT)
    assert line.status is status
    assert said in line.detail
    assert (line.hint is None) is (status is CheckStatus.PASSED)


def test_an_account_whose_number_may_not_be_read_is_a_warning():
    with both(trust(NUMBER)) as (on_aws, on_google, cloud):
        cloud.faults.refuse_next("serviceAccounts.get", 403, "forbidden", "denied")
        lines = check_role(on_aws, on_google, role_arn=ROLE, account=google.ACCOUNT)
    assert [line.status for line in lines] == [CheckStatus.WARNING] * 2
    assert "iam.serviceAccounts.get" in lines[0].hint


def test_a_provider_and_an_account_that_fit_pass():
    with both() as (on_aws, on_google, cloud):
        cloud.aws_accounts[PROVIDER] = "123456789012"
        cloud.impersonated.add(google.ACCOUNT)
        lines = check_federation(on_aws, on_google, provider=PROVIDER, account=google.ACCOUNT)
    assert [line.status for line in lines] == [CheckStatus.PASSED] * 2


@pytest.mark.parametrize(
    ("accounts", "impersonated", "said"),
    [
        ({}, True, "there is no projects/1"),
        ({PROVIDER: "999999999999"}, True, "trusts the AWS account 999999999999, machines are of"),
        ({PROVIDER: "123456789012"}, False, "nobody of projects/1"),
    ],
)
def test_what_does_not_fit_is_told_with_where_to_read(accounts, impersonated, said):
    with both() as (on_aws, on_google, cloud):
        cloud.aws_accounts |= accounts
        if impersonated:
            cloud.impersonated.add(google.ACCOUNT)
        lines = check_federation(on_aws, on_google, provider=PROVIDER, account=google.ACCOUNT)
    failed = [line for line in lines if line.status is CheckStatus.FAILED]
    assert len(failed) == 1
    assert said in failed[0].detail
    assert "two-clouds.md" in failed[0].hint


def test_only_a_store_in_the_other_cloud_is_looked_at():
    assert check_of_store("s3://b/x", ["aws"], {}) is None
    assert check_of_store("gs://b/x", ["gcp"], {}) is None
    assert check_of_store("/a/directory", ["local"], {}) is None
    assert check_of_store("s3://b/x", ["aws", "gcp"], ENVIRONMENT) is not None
    assert check_of_store("gs://b/x", ["aws", "gcp"], ENVIRONMENT) is not None
    with pytest.raises(UsageError, match="is not set"):
        check_of_store("s3://b/x", ["aws", "gcp"], {})
