"""The catalogue of the day: the bundled snapshot with what was read from clouds over it."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.cache import CacheError, PriceCache, cache_from_json, cache_to_json
from cloudgavel.pricing.catalog import Catalog

DIRECTORY_VARIABLE = "CLOUDGAVEL_CACHE_DIR"
NAME = "prices.json"


def cache_path(environment: Mapping[str, str]) -> Path:
    """``$CLOUDGAVEL_CACHE_DIR``, else ``cloudgavel`` in the user's cache directory (XDG)."""
    own = environment.get(DIRECTORY_VARIABLE)
    if own:
        return Path(own) / NAME
    users = environment.get("XDG_CACHE_HOME")
    base = Path(users) if users else Path(environment.get("HOME") or "~").expanduser() / ".cache"
    return base / "cloudgavel" / NAME


def read_cache(path: Path, *, note: Callable[[str], None] = lambda text: None) -> PriceCache:
    """Read a cache; one that is missing is empty, one that cannot be read too, with a note."""
    try:
        return cache_from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return PriceCache()
    except (OSError, CacheError) as error:
        note(f"the cache of prices {path} is not used: {error}")
        return PriceCache()


def write_cache(path: Path, cache: PriceCache) -> None:
    """Replace a cache, whole or not at all; ``OSError`` where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_text(cache_to_json(cache), encoding="utf-8")
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def known_catalog(
    environment: Mapping[str, str], *, note: Callable[[str], None] = lambda text: None
) -> Catalog:
    """The bundled catalogue, brought up to date by the cache."""
    return bundled_catalog().merge(read_cache(cache_path(environment), note=note).catalog)


def catalog_of_run(
    path: Path, environment: Mapping[str, str], *, note: Callable[[str], None]
) -> Catalog:
    """The catalogue that a run began with; kept at ``path``, so that each controller has the same.

    Where it cannot be kept the run goes on with the catalogue of the day.
    """
    if path.exists():
        kept = read_cache(path, note=note)
        if kept.catalog.offers:
            return kept.catalog
    known = known_catalog(environment, note=note)
    try:
        write_cache(path, PriceCache(catalog=known))
    except OSError as error:
        note(f"the run's prices could not be kept in {path}: {error}")
    return known
