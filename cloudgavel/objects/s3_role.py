"""A boto3 session that acts as a role by a Google machine's identity."""

import os
from typing import Any

from cloudgavel.objects.keyless import bucket_region, role_keys


def session_as(role_arn: str, bucket: str) -> Any:
    """Return a session of the role, in the bucket's region.

    Keys are fetched when first needed, and anew before they end. ``NoAccess`` and ``OSError`` as of
    ``objects.keyless``, now and from every call.
    """
    import boto3
    import botocore.session
    from botocore.credentials import (
        CredentialProvider,
        CredentialResolver,
        DeferredRefreshableCredentials,
    )

    # The SDK reads the same variables by itself.
    environment = os.environ  # noqa: TID251

    def refresh() -> dict[str, str]:
        keys = role_keys(role_arn, environment)
        return {
            "access_key": keys.key_id,
            "secret_key": keys.secret,
            "token": keys.token,
            "expiry_time": keys.expires_at,
        }

    class Identity(CredentialProvider):
        METHOD = CANONICAL_NAME = "google-identity"

        def load(self) -> Any:
            return DeferredRefreshableCredentials(refresh_using=refresh, method=self.METHOD)

    session = botocore.session.get_session()
    session.register_component("credential_provider", CredentialResolver([Identity()]))
    region = bucket_region(bucket, environment)
    return boto3.session.Session(botocore_session=session, region_name=region)
