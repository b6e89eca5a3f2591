"""Whether machines of one cloud may use the run's store in the other: who trusts whom.

Nothing is created: the role, or the identity provider and the account, are read.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from cloudgavel.documents.check import CheckLine, CheckStatus
from cloudgavel.objects.keyless import AUDIENCE
from cloudgavel.providers.aws.clients import PRICE_LIST_REGION, AwsClients
from cloudgavel.providers.aws.failures import Explained as ExplainedByAws
from cloudgavel.providers.aws.failures import explain as explain_aws
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.failures import Explained as ExplainedByGoogle
from cloudgavel.providers.gcp.failures import explain as explain_google
from cloudgavel.providers.store_access import (
    ACCOUNT_VARIABLE,
    PROVIDER_VARIABLE,
    ROLE_VARIABLE,
    store_url_on_aws,
    store_url_on_google,
)

WHERE = "docs/how-to/two-clouds.md"
_GOOGLE = "accounts.google.com"
_ACTION = "sts:AssumeRoleWithWebIdentity"
USER_ROLE = "roles/iam.workloadIdentityUser"


def check_role(
    aws: AwsClients, google: GcpClients, *, role_arn: str, account: str
) -> list[CheckLine]:
    """Look at the AWS role as which Google's machines use an S3 store: it is there and trusts them.

    What may not be read is a warning. The role's rights on the bucket are not looked at.
    """
    name = role_arn.rpartition("/")[2]
    try:
        role = aws.client("iam", PRICE_LIST_REGION).get_role(RoleName=name)["Role"]
    except Exception as error:
        return [_not_read("aws", "store role", explain_aws(error), "iam:GetRole")]
    if role["Arn"] != role_arn:
        said = f"{role_arn} is not there; this account has {role['Arn']}"
        return [_line("aws", "store role", CheckStatus.FAILED, said, f"see {WHERE}, section A")]
    try:
        number = google.service_account(account)["uniqueId"]
    except Exception as error:
        lines = [_not_read("gcp", "store role", explain_google(error), "iam.serviceAccounts.get")]
        number = None
    else:
        lines = []
    trust = role["AssumeRolePolicyDocument"]
    document = json.loads(unquote(trust)) if isinstance(trust, str) else trust
    lines += _trust_lines(document, role_arn, account, number)
    return lines


def check_federation(
    aws: AwsClients, google: GcpClients, *, provider: str, account: str
) -> list[CheckLine]:
    """Look at the way by which AWS's machines use a store on Cloud Storage.

    The provider trusts the AWS account of the caller, and identities of its pool may act as the
    service account. What may not be read is a warning.
    """
    hint = f"see {WHERE}, section B"
    try:
        found = google.identity_provider(provider)
    except Exception as error:
        failed = explain_google(error)
        needed = "iam.workloadIdentityPoolProviders.get"
        return [_not_read("gcp", "store provider", failed, needed, missing=hint)]
    lines: list[CheckLine] = []

    def say(subject: str, wrong: str | None, right: str) -> None:
        status = CheckStatus.PASSED if wrong is None else CheckStatus.FAILED
        lines.append(_line("gcp", subject, status, wrong or right, wrong and hint))

    trusted = str(found.get("aws", {}).get("accountId", ""))
    off = found.get("disabled") or found.get("state", "ACTIVE") != "ACTIVE"
    wrong = f"{provider} is switched off" if off else None
    if not trusted:
        wrong = f"{provider} is not one for AWS"
    try:
        own = str(aws.client("sts", PRICE_LIST_REGION).get_caller_identity()["Account"])
    except Exception as error:
        lines.append(_not_read("aws", "store provider", explain_aws(error), "credentials"))
    else:
        if wrong is None and own != trusted:
            wrong = f"{provider} trusts the AWS account {trusted}, machines are of {own}"
    say("store provider", wrong, f"trusts the AWS account {trusted}")
    try:
        bindings = google.account_policy(account).get("bindings", [])
    except Exception as error:
        needed = "iam.serviceAccounts.getIamPolicy"
        return [*lines, _not_read("gcp", "store account", explain_google(error), needed)]
    pool = provider.partition("/providers/")[0]
    members = [
        member
        for binding in bindings
        if binding.get("role") == USER_ROLE
        for member in binding.get("members", ())
        if f"//iam.googleapis.com/{pool}/" in member
    ]
    nobody = None if members else f"nobody of {pool} may act as {account}"
    say("store account", nobody, f"{', '.join(members)} may act as {account}")
    return lines


def _trust_lines(
    document: Mapping[str, Any], role_arn: str, account: str, number: str | None
) -> list[CheckLine]:
    """Judge a role's trust policy: one statement lets the account in, and lets in nobody else."""
    statements = document.get("Statement", [])
    wanted = {
        f"{_GOOGLE}:aud": number,
        f"{_GOOGLE}:sub": number,
        f"{_GOOGLE}:oaud": AUDIENCE,
    }
    lines = []
    lets_in = False
    for statement in [statements] if isinstance(statements, dict) else statements:
        if not _is_for_google(statement):
            continue
        asked = {
            key: _listed(value)
            for kind, conditions in statement.get("Condition", {}).items()
            if kind == "StringEquals"
            for key, value in conditions.items()
        }
        if f"{_GOOGLE}:sub" not in asked and f"{_GOOGLE}:aud" not in asked:
            said = f"{role_arn} lets in every account of Google"
            lines.append(_line("aws", "store role", CheckStatus.FAILED, said, _statement(number)))
        elif all(
            key in asked and (value is None or value in asked[key]) for key, value in wanted.items()
        ):
            lets_in = True
    if lines:
        return lines
    if not lets_in:
        said = f"{role_arn} does not trust {account} ({number or 'its number is not known'})"
        return [_line("aws", "store role", CheckStatus.FAILED, said, _statement(number))]
    said = f"{role_arn} trusts {account if number else 'an account of Google'}"
    status = CheckStatus.PASSED if number else CheckStatus.WARNING
    return [_line("aws", "store role", status, said)]


def _is_for_google(statement: Mapping[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    federated = principal.get("Federated", ()) if isinstance(principal, dict) else ()
    return (
        statement.get("Effect") == "Allow"
        and _GOOGLE in _listed(federated)
        and _ACTION in _listed(statement.get("Action", ()))
    )


def _listed(value: Any) -> Sequence[str]:
    return (value,) if isinstance(value, str) else tuple(str(each) for each in value)


def _statement(number: str | None) -> str:
    who = number or "NUMBER"
    return (
        f"its trust policy needs {_ACTION} for {_GOOGLE} where {_GOOGLE}:aud and :sub are {who} "
        f"and :oaud is {AUDIENCE}: {WHERE}, section A"
    )


def _not_read(
    cloud: str,
    subject: str,
    failed: ExplainedByAws | ExplainedByGoogle,
    permission: str,
    *,
    missing: str | None = None,
) -> CheckLine:
    """A thing that is not there fails; one that may not be looked at is a warning."""
    if failed.code in ("NoSuchEntity", "notFound", "NOT_FOUND", "NotFound"):
        hint = missing or f"see {WHERE}"
        return _line(cloud, subject, CheckStatus.FAILED, failed.message, hint)
    return _line(
        cloud,
        subject,
        CheckStatus.WARNING,
        f"cannot be read: {failed.message}",
        f"allow {permission}, so that it can be looked at",
    )


def _line(
    cloud: str, subject: str, status: CheckStatus, detail: str, hint: str | None = None
) -> CheckLine:
    return CheckLine(
        provider=cloud, region=None, subject=subject, status=status, detail=detail, hint=hint
    )


Check = Callable[[AwsClients, GcpClients], list[CheckLine]]


def check_of_store(
    store_url: str, clouds: Sequence[str], environment: Mapping[str, str]
) -> Check | None:
    """Return what to look at for a run's store and clouds; ``None`` = all are in its own cloud.

    ``UsageError`` where machines have no way to the store.
    """
    account = environment.get(ACCOUNT_VARIABLE, "")
    if store_url.startswith("s3://") and "gcp" in clouds:
        store_url_on_google(store_url, environment)
        role = environment[ROLE_VARIABLE].strip()
        return lambda aws, google: check_role(aws, google, role_arn=role, account=account)
    if store_url.startswith("gs://") and "aws" in clouds:
        store_url_on_aws(store_url, environment)
        provider = environment[PROVIDER_VARIABLE].strip().removeprefix("//iam.googleapis.com/")
        return lambda aws, google: check_federation(aws, google, provider=provider, account=account)
    return None
