"""From one cloud into the other's store without keys, with the standard library alone.

A machine on Google Cloud shows AWS its identity token and gets a role's keys for an hour
(``AssumeRoleWithWebIdentity``). One on AWS shows Google a request that only its role can sign, and
gets a service account's token (workload identity federation). Start-up scripts carry this file as
it is, to fetch the agent with it, so it imports nothing of cloudgavel.
"""

import hashlib
import hmac
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

AUDIENCE = "cloudgavel-store"
"""For whom a Google machine's identity token is made; the AWS role asks for it (``oaud``)."""
LASTS_S = 3600
TIMEOUT_S = 30.0
GOOGLE_METADATA = "metadata.google.internal"
AWS_METADATA = "http://169.254.169.254"
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_SAFE = "-_.~"


class NoAccess(Exception):
    """The other cloud, or this one's metadata server, said no; repeating changes nothing."""


@dataclass(frozen=True, kw_only=True)
class AwsKeys:
    """Temporary keys of a role; ``expires_at`` as AWS writes it (ISO 8601)."""

    key_id: str
    secret: str
    token: str
    expires_at: str


def role_keys(role_arn: str, environment: Mapping[str, str]) -> AwsKeys:
    """Exchange this Google machine's identity for a role's keys; ``NoAccess``, ``OSError``."""
    base = f"http://{environment.get('GCE_METADATA_HOST') or GOOGLE_METADATA}/computeMetadata/v1/"
    flavor = {"Metadata-Flavor": "Google"}
    audience = urlencode({"audience": AUDIENCE, "format": "full"})
    identity = _call(
        "GET", f"{base}instance/service-accounts/default/identity?{audience}", flavor, near=True
    )
    name = _call("GET", f"{base}instance/name", flavor, near=True).decode()
    asked = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": role_arn,
        "RoleSessionName": re.sub(r"[^\w+=,.@-]", "-", name)[:64],
        "WebIdentityToken": identity.decode().strip(),
        "DurationSeconds": str(LASTS_S),
    }
    url = environment.get("AWS_ENDPOINT_URL") or "https://sts.amazonaws.com/"
    answer = ElementTree.fromstring(_call("POST", url, _FORM, urlencode(asked).encode()))
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
    found = [answer.findtext(f".//{{*}}{name}") or "" for name in names]
    if not all(found):
        raise NoAccess(f"AWS gave no keys for {role_arn}")
    return AwsKeys(key_id=found[0], secret=found[1], token=found[2], expires_at=found[3])


def google_token(
    provider: str,
    account: str,
    environment: Mapping[str, str],
    *,
    now_s: float,
    endpoint: str | None = None,
) -> tuple[str, float]:
    """Exchange this AWS machine's role for a service account's token: ``(token, seconds)``.

    ``provider`` is ``projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/ID``;
    ``endpoint`` stands for all of Google's addresses (a fake cloud). ``NoAccess``, ``OSError``.
    """
    keys, region = _own_role(environment)
    target = f"//iam.googleapis.com/{provider}"
    url = f"https://sts.{region}.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"
    headers = signed(
        "POST",
        url,
        keys=keys,
        region=region,
        service="sts",
        now_s=now_s,
        headers={"x-goog-cloud-target-resource": target},
    )
    lines = [{"key": name, "value": value} for name, value in sorted(headers.items())]
    kind = "urn:ietf:params:oauth:"
    asked = {
        "grant_type": f"{kind}grant-type:token-exchange",
        "audience": target,
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "requested_token_type": f"{kind}token-type:access_token",
        "subject_token_type": "urn:ietf:params:aws:token-type:aws4_request",
        "subject_token": quote(json.dumps({"url": url, "method": "POST", "headers": lines})),
    }
    url = f"{endpoint or 'https://sts.googleapis.com'}/v1/token"
    federated = json.loads(_call("POST", url, _FORM, urlencode(asked).encode()))
    base = f"{endpoint or 'https://iamcredentials.googleapis.com'}/v1/projects/-/serviceAccounts"
    answer = _call(
        "POST",
        f"{base}/{account}:generateAccessToken",
        {
            "Authorization": f"Bearer {federated['access_token']}",
            "Content-Type": "application/json",
        },
        json.dumps(
            {
                "scope": ["https://www.googleapis.com/auth/devstorage.read_write"],
                "lifetime": f"{LASTS_S}s",
            }
        ).encode(),
    )
    return str(json.loads(answer)["accessToken"]), float(LASTS_S)


def bucket_region(bucket: str, environment: Mapping[str, str]) -> str:
    """Ask S3 where a bucket is, which it tells anybody; ``NoAccess`` when there is none."""
    if environment.get("AWS_ENDPOINT_URL"):
        return environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    request = urllib.request.Request(f"https://s3.amazonaws.com/{bucket}", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:
        headers = error.headers
    except OSError as error:
        raise ConnectionError(f"s3.amazonaws.com: {error}") from error
    region = headers.get("x-amz-bucket-region")
    if not region:
        raise NoAccess(f"AWS has no bucket {bucket}")
    return str(region)


def signed(
    method: str,
    url: str,
    *,
    keys: AwsKeys,
    region: str,
    service: str,
    now_s: float,
    headers: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the headers of a call without a body, signed in AWS's way (Signature Version 4)."""
    parts = urlsplit(url)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    nothing = hashlib.sha256(b"").hexdigest()
    sent = {"host": parts.netloc, "x-amz-date": stamp, **(headers or {})}
    if keys.token:
        sent["x-amz-security-token"] = keys.token
    if service == "s3":
        sent["x-amz-content-sha256"] = nothing
    names = sorted(sent)
    pairs = sorted(parse_qsl(parts.query, keep_blank_values=True))
    query = "&".join(f"{quote(name, safe=_SAFE)}={quote(text, safe=_SAFE)}" for name, text in pairs)
    lines = [f"{name}:{sent[name].strip()}" for name in names]
    canonical = "\n".join([method, parts.path or "/", query, *lines, "", ";".join(names), nothing])
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    sent["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys.key_id}/{scope}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return sent


def fetched(store_url: str, url: str, environment: Mapping[str, str], *, now_s: float) -> bytes:
    """Return an object of a store in the other cloud.

    ``store_url`` says how it is reached (``?role=`` or ``?provider=&account=``), ``url`` is
    ``s3://`` or ``gs://bucket/key``.
    """
    access = dict(parse_qsl(urlsplit(store_url).query))
    parts = urlsplit(url)
    bucket, key = parts.netloc, parts.path.lstrip("/")
    if parts.scheme == "s3":
        keys = role_keys(access["role"], environment)
        region = bucket_region(bucket, environment)
        base = environment.get("AWS_ENDPOINT_URL") or f"https://s3.{region}.amazonaws.com"
        address = f"{base.rstrip('/')}/{bucket}/{quote(key)}"
        return _call(
            "GET",
            address,
            signed("GET", address, keys=keys, region=region, service="s3", now_s=now_s),
        )
    endpoint = access.get("endpoint")
    token, _ = google_token(
        access["provider"], access["account"], environment, now_s=now_s, endpoint=endpoint
    )
    base = endpoint or "https://storage.googleapis.com"
    address = f"{base}/storage/v1/b/{bucket}/o/{quote(key, safe='')}?alt=media"
    return _call("GET", address, {"Authorization": f"Bearer {token}"})


def _own_role(environment: Mapping[str, str]) -> tuple[AwsKeys, str]:
    """Return the keys of this AWS machine's role, and its region."""
    base = (environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or AWS_METADATA).rstrip("/")
    seconds = {"X-aws-ec2-metadata-token-ttl-seconds": "300"}
    ticket = _call("PUT", f"{base}/latest/api/token", seconds, near=True).decode()

    def read(path: str) -> str:
        header = {"X-aws-ec2-metadata-token": ticket}
        return _call("GET", f"{base}/latest/meta-data/{path}", header, near=True).decode()

    role = read("iam/security-credentials/").split()
    if not role:
        raise NoAccess("this machine has no instance profile")
    told = json.loads(read(f"iam/security-credentials/{role[0]}"))
    keys = AwsKeys(
        key_id=told["AccessKeyId"],
        secret=told["SecretAccessKey"],
        token=told["Token"],
        expires_at=told["Expiration"],
    )
    return keys, read("placement/region").strip()


def _call(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    *,
    near: bool = False,
) -> bytes:
    """Send one call; ``near`` = to this machine's own metadata server, through no proxy.

    ``NoAccess`` for a refusal, ``ConnectionError`` for what may work the next time.
    """
    request = urllib.request.Request(url, data=body, headers=dict(headers), method=method)
    ways = [urllib.request.ProxyHandler({})] if near else []
    try:
        with urllib.request.build_opener(*ways).open(request, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        host = urlsplit(url).netloc
        said = f"{host} answered {error.code}: {error.read(400).decode(errors='replace').strip()}"
        if error.code == 429 or error.code >= 500:
            raise ConnectionError(said) from error
        raise NoAccess(said) from error
    except OSError as error:
        raise ConnectionError(f"{urlsplit(url).netloc}: {error}") from error


if __name__ == "__main__":
    # From a start-up script: STORE_URL, the agent's address, and where to put it.
    _, given_store, given_url, given_path = sys.argv
    data = fetched(given_store, given_url, os.environ, now_s=time.time())  # noqa: TID251
    with open(given_path, "wb") as sink:
        sink.write(data)
