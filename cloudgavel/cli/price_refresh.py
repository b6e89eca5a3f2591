"""``prices --refresh``: ask the clouds, judge what they say, keep it for every command."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cloudgavel.cli.streams import note
from cloudgavel.errors import CloudgavelError, CredentialsError
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.providers.failures import CallFailed, FailureKind
from cloudgavel.runtime.price_cache import (
    DIRECTORY_VARIABLE,
    cache_path,
    read_cache,
    write_cache,
)

Reader = Callable[[Catalog, Sequence[str], float], Catalog]
"""``(known, regions, now_s)`` -> what was read, judged; the cloud's errors as ``CallFailed``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refreshed:
    """What one cloud said."""

    provider: str
    read: int
    """Prices read."""
    changed: int
    """Of them, other than what was known."""
    refused: int
    """Of them, not believed."""


def refresh_prices(
    providers: Sequence[str],
    regions: Mapping[str, Sequence[str]],
    *,
    now_s: float,
    readers: Mapping[str, Reader] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Refreshed]:
    """Read the prices of each cloud into the cache; one that does not answer keeps what was known.

    Each refusal is told on stderr. When no cloud answers, the first one's failure is raised
    (``CredentialsError`` where it knows nobody).
    """
    given = os.environ if environment is None else environment
    path = cache_path(given)
    cache = read_cache(path, note=note)
    done: list[Refreshed] = []
    failures: list[CloudgavelError] = []
    for provider in providers:
        known = bundled_catalog().merge(cache.catalog)
        reader = (readers or READERS)[provider]
        note(f"reading the prices of {provider} ...")
        try:
            fresh = reader(known, regions.get(provider, ()), now_s)
        except CallFailed as error:
            failures.append(_failure(provider, error))
            note(f"{provider}: its prices stay as they were: {error.message}")
            continue
        cache = cache.with_read(provider, fresh, now_s)
        done.append(_told(provider, known, fresh, now_s))
    if not done and failures:
        raise failures[0]
    try:
        write_cache(path, cache)
    except OSError as error:
        raise CloudgavelError(
            f"the prices were read and could not be kept: {error}",
            hints=[f"give a directory that can be written: {DIRECTORY_VARIABLE}=DIR"],
        ) from error
    return done


def _told(provider: str, known: Catalog, fresh: Catalog, now_s: float) -> Refreshed:
    read = [offer for offer in fresh.offers if offer.observed_at_s == now_s]
    refused = [offer for offer in fresh.refused if offer.observed_at_s == now_s]
    changed = 0
    for offer in read:
        before = known.get(offer.offer_id)
        changed += before is None or before.price_usd_per_hour != offer.price_usd_per_hour
    result = Refreshed(
        provider=provider, read=len(read) + len(refused), changed=changed, refused=len(refused)
    )
    note(
        f"{provider}: {result.read:,} prices read, {changed:,} changed, {len(refused):,} not "
        "believed" + (" (`cloudgavel prices --all` says why)" if refused else "")
    )
    return result


def _failure(provider: str, error: CallFailed) -> CloudgavelError:
    kind = CredentialsError if error.kind is FailureKind.CREDENTIALS else CloudgavelError
    return kind(
        f"the prices of {provider} could not be read; the last known ones stay",
        facts=[("it said", error.message)],
        hints=[f"look at the account: cloudgavel check --provider {provider}"],
    )


def _read_aws(known: Catalog, regions: Sequence[str], now_s: float) -> Catalog:
    from cloudgavel.providers.aws.clients import AwsClients
    from cloudgavel.providers.aws.failures import call_failed
    from cloudgavel.providers.aws.prices import read_catalog

    sold = {offer.region for offer in known.search(providers={"aws"})}
    try:
        return read_catalog(AwsClients(), known, regions=list(regions) or sold, now_s=now_s)
    except Exception as error:
        raise call_failed(error, "read the price list") from error


def _read_gcp(known: Catalog, regions: Sequence[str], now_s: float) -> Catalog:
    from cloudgavel.providers.gcp.clients import GcpClients
    from cloudgavel.providers.gcp.failures import call_failed
    from cloudgavel.providers.gcp.prices import refreshed_catalog

    try:
        # The catalogue is one list for all regions: reading a part of it saves nothing.
        return refreshed_catalog(GcpClients(), reference=known, now_s=now_s)
    except Exception as error:
        raise call_failed(error, "read the billing catalogue") from error


READERS: Mapping[str, Reader] = MappingProxyType({"aws": _read_aws, "gcp": _read_gcp})
