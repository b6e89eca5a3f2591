"""What an AWS machine's metadata server says of its identity: a role's keys, and the region."""

import json
from dataclasses import dataclass

from cloudgavel.providers.gcp.mocked.answers import Answer, Request

KEY_ID = "ASIAMACHINE"
SECRET = "a-machines-secret"


@dataclass
class FakeIdentityOfMachine:
    """The part of IMDSv2 that tells who a machine is; ``role=None`` = no instance profile."""

    role: str | None = "cloudgavel-agent"
    region: str = "eu-west-1"
    instance_id: str = "i-0123456789abcdef0"
    ticket: str = "a-ticket"

    def handle(self, request: Request) -> Answer:
        if request.path == "/latest/api/token":
            return Answer(status=200 if request.method == "PUT" else 405, body=self.ticket.encode())
        if request.headers.get("x-aws-ec2-metadata-token") != self.ticket:
            return Answer(status=401)
        value = self._value(request.path.removeprefix("/latest/meta-data/"))
        return Answer(status=404) if value is None else Answer(body=value.encode())

    def _value(self, name: str) -> str | None:
        match name:
            case "instance-id":
                return self.instance_id
            case "placement/region":
                return self.region
            case "iam/security-credentials/" if self.role is not None:
                return f"{self.role}\n"
            case _ if self.role is not None and name == f"iam/security-credentials/{self.role}":
                keys = {
                    "Code": "Success",
                    "AccessKeyId": KEY_ID,
                    "SecretAccessKey": SECRET,
                    "Token": "a-session",
                    "Expiration": "2099-01-01T00:00:00Z",
                }
                return json.dumps(keys)
        return None
