"""How machines of one cloud reach the run's store, in their own cloud or in the other, keyless."""

import base64
import gzip
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from cloudgavel.errors import UsageError
from cloudgavel.objects.gcs import PROVIDER
from cloudgavel.objects.keyless import __file__ as _keyless_path

ROLE_VARIABLE = "CLOUDGAVEL_AWS_STORE_ROLE"
"""ARN of the role as which machines on Google Cloud use an S3 store."""
PROVIDER_VARIABLE = "CLOUDGAVEL_GCP_STORE_PROVIDER"
"""Workload identity provider through which machines on AWS use a store on Cloud Storage."""
ACCOUNT_VARIABLE = "CLOUDGAVEL_GCP_SERVICE_ACCOUNT"
"""E-mail of the account that machines on Google Cloud are, and machines on AWS act as there."""
ROLE = re.compile(r"arn:aws:iam::\d{12}:role/[\w+=,.@/-]+")


def store_url_on_google(store_url: str, environment: Mapping[str, str]) -> str:
    """Return the store as machines on Google Cloud open it; ``UsageError`` if they cannot."""
    if store_url.startswith("gs://"):
        return store_url
    if not store_url.startswith("s3://"):
        raise _cannot_reach("Google Cloud", store_url, "docs/how-to/gcp.md, section 3")
    role = environment.get(ROLE_VARIABLE, "").strip()
    if not role or not environment.get(ACCOUNT_VARIABLE):
        missing = ROLE_VARIABLE if not role else ACCOUNT_VARIABLE
        raise UsageError(
            f"{missing} is not set: machines on Google Cloud cannot reach this store",
            facts=[("store", store_url)],
            hints=["a role of AWS may trust them: docs/how-to/two-clouds.md"],
        )
    if not ROLE.fullmatch(role):
        raise UsageError(
            f"{ROLE_VARIABLE} is not the ARN of a role: {role!r}",
            hints=["for example arn:aws:iam::123456789012:role/cloudgavel-agent"],
        )
    return f"{store_url}?role={quote(role, safe=':/')}"


def store_url_on_aws(store_url: str, environment: Mapping[str, str]) -> str:
    """Return the store as machines on AWS open it; ``UsageError`` if they cannot."""
    if store_url.startswith("s3://"):
        return store_url
    if not store_url.startswith("gs://"):
        raise _cannot_reach("AWS", store_url, "docs/how-to/aws.md, section 3")
    provider = environment.get(PROVIDER_VARIABLE, "").strip().removeprefix("//iam.googleapis.com/")
    account = environment.get(ACCOUNT_VARIABLE, "").strip()
    if not provider or not account:
        missing = PROVIDER_VARIABLE if not provider else ACCOUNT_VARIABLE
        raise UsageError(
            f"{missing} is not set: machines on AWS cannot reach this store",
            facts=[("store", store_url)],
            hints=["an identity provider of Google may trust them: docs/how-to/two-clouds.md"],
        )
    if not PROVIDER.fullmatch(provider):
        raise UsageError(
            f"{PROVIDER_VARIABLE} is not the name of a workload identity provider: {provider!r}",
            hints=["projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/ID"],
        )
    mark = "&" if "?" in store_url else "?"
    return f"{store_url}{mark}provider={provider}&account={account}"


def is_elsewhere(store_url: str) -> bool:
    """Whether a machine's store is in the other cloud, by the URL that it is given."""
    return "role=" in store_url or "provider=" in store_url


def fetching_program() -> str:
    """Return lines of a start-up script that write ``objects.keyless`` as ``keyless.py``.

    Packed, for user data has its limit. Equal installations give equal lines.
    """
    packed = gzip.compress(Path(_keyless_path).read_bytes(), mtime=0)
    text = base64.encodebytes(packed).decode()
    return f"base64 -d <<'END' | gunzip >keyless.py\n{text}END\n"


def _cannot_reach(cloud: str, store_url: str, where: str) -> UsageError:
    kind = "gs" if cloud == "Google Cloud" else "s3"
    return UsageError(
        f"machines on {cloud} cannot reach this store",
        facts=[("store", store_url)],
        hints=[f"give `store: {kind}://BUCKET/runs/NAME`; see {where}"],
    )
