"""Who is who in the fake cloud: identity tokens of machines, and federation with AWS."""

import base64
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from cloudgavel.providers.gcp.mocked.answers import Answer, Refusal, Request, said, stamp
from cloudgavel.providers.gcp.mocked.cloud import FakeGcp, Slice, Vm

MACHINE_TOKEN = "fake-access-token"
"""What every machine's metadata server gives."""
LASTS_S = 3600.0
_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_SUBJECT = "urn:ietf:params:aws:token-type:aws4_request"
_AWS_HOST = re.compile(r"sts\.[a-z0-9-]+\.amazonaws\.com")
_MUST_BE_SIGNED = {"host", "x-amz-date", "x-goog-cloud-target-resource"}


def account_id(email: str) -> str:
    """Return the unique number of a service account: 21 digits, by its e-mail."""
    return f"1{zlib.crc32(email.encode()):020d}"


def account_of(machine: Vm | Slice) -> str | None:
    """Return the e-mail of the account that a machine acts as."""
    body = machine.body
    named = [body["serviceAccount"]] if body.get("serviceAccount") else []
    for account in [*named, *body.get("serviceAccounts", ())]:
        return str(account["email"])
    return None


def identity_token(machine: Vm | Slice, audience: str, now_s: float) -> str | None:
    """Return the token that says who a machine is, to ``audience``; ``None`` without an account.

    Its claims are Google's; it is not signed.
    """
    email = account_of(machine)
    if email is None:
        return None
    number = account_id(email)
    claims = {
        "iss": "https://accounts.google.com",
        "aud": audience,
        "azp": number,
        "sub": number,
        "email": email,
        "email_verified": True,
        "iat": int(now_s),
        "exp": int(now_s + LASTS_S),
    }
    head = {"alg": "RS256", "kid": "fake", "typ": "JWT"}
    return ".".join([_packed(head), _packed(claims), "not-signed"])


def claims_of(token: str) -> dict[str, Any]:
    """Return what an identity token claims."""
    text = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


@dataclass
class FakeIdentity:
    """The token exchange and the accounts' credentials, for ``cloud.aws_accounts``."""

    cloud: FakeGcp
    federated: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=lambda: {MACHINE_TOKEN})
    """With which the storage may be used."""

    def route(self, request: Request) -> tuple[str, Callable[[], Answer]] | None:
        """Return the operation's name and what does it; ``None`` for a path of no use here."""
        if request.path == "/v1/token" and request.method == "POST":
            return "sts.token", lambda: self._exchange(request)
        name = request.path.removeprefix("/v1/")
        if request.method == "GET" and "/workloadIdentityPools/" in name:
            return "workloadIdentityPools.providers.get", lambda: self._provider(name)
        asked = re.fullmatch(r"projects/-/serviceAccounts/([^/:]+)(?::(\w+))?", unquote(name))
        if asked is None:
            return None
        email, verb = asked[1], asked[2] or "get"
        do = {
            "get": lambda: said({"email": email, "uniqueId": account_id(email)}),
            "getIamPolicy": lambda: self._policy(email),
            "generateAccessToken": lambda: self._generate(email, request),
        }
        return f"serviceAccounts.{verb}", do[verb]

    def require_known(self, request: Request) -> None:
        """Refuse a call with a token that was never given out; one without is the controller's."""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token and token not in self.tokens:
            raise Refusal(401, "authError", "Invalid Credentials")
        if token:
            self.cloud.calls[f"token {token.partition('-')[0]}"] += 1

    def _provider(self, name: str) -> Answer:
        account = self.cloud.aws_accounts.get(name)
        if account is None:
            raise Refusal(404, "notFound", f"there is no {name}")
        return said({"name": name, "state": "ACTIVE", "aws": {"accountId": account}})

    def _policy(self, email: str) -> Answer:
        pools = sorted({each.partition("/providers/")[0] for each in self.cloud.aws_accounts})
        members = [
            f"principalSet://iam.googleapis.com/{pool}/attribute.aws_role/cloudgavel-agent"
            for pool in pools
            if email in self.cloud.impersonated
        ]
        binding = {"role": "roles/iam.workloadIdentityUser", "members": members}
        return said({"bindings": [binding] if members else []})

    def _exchange(self, request: Request) -> Answer:
        asked = dict(parse_qsl(request.body.decode()))
        if (asked.get("grant_type"), asked.get("subject_token_type")) != (_GRANT, _SUBJECT):
            raise Refusal(400, "invalid_request", "no exchange of a request signed for AWS")
        audience = asked.get("audience", "")
        account = self.cloud.aws_accounts.get(audience.removeprefix("//iam.googleapis.com/"))
        if account is None:
            raise Refusal(400, "invalid_target", f"there is no provider {audience}")
        proof = json.loads(unquote(asked.get("subject_token", "")))
        headers = {each["key"].lower(): each["value"] for each in proof["headers"]}
        url = urlsplit(proof["url"])
        signed = re.search(r"SignedHeaders=([^,]+)", headers.get("authorization", ""))
        if (
            signed is None
            or not set(signed[1].split(";")) >= _MUST_BE_SIGNED
            or headers["x-goog-cloud-target-resource"] != audience
            or headers["host"] != url.netloc
            or not _AWS_HOST.fullmatch(url.netloc)
            or dict(parse_qsl(url.query)).get("Action") != "GetCallerIdentity"
        ):
            raise Refusal(400, "invalid_grant", "the request is not one that AWS would answer")
        if self.cloud.aws_account_of(headers) != account:
            raise Refusal(401, "unauthorized_client", "the provider does not trust this caller")
        token = f"federated-{len(self.federated)}"
        self.federated.add(token)
        return said({"access_token": token, "token_type": "Bearer", "expires_in": int(LASTS_S)})

    def _generate(self, email: str, request: Request) -> Answer:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.federated:
            raise Refusal(401, "authError", "Invalid Credentials", rpc="UNAUTHENTICATED")
        if email not in self.cloud.impersonated:
            denied = f"Permission 'iam.serviceAccounts.getAccessToken' denied on {email}"
            raise Refusal(403, "forbidden", denied, rpc="PERMISSION_DENIED")
        own = f"impersonated-{len(self.tokens)}"
        self.tokens.add(own)
        ends_at = stamp(self.cloud.now_s() + LASTS_S)
        return said({"accessToken": own, "expireTime": ends_at})


def _packed(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()
