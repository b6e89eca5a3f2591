"""The catalogue shipped with the package: the one module of the decision core that opens files."""

import functools
from importlib import resources

from cloudgavel.pricing.catalog import Catalog, checked_catalog
from cloudgavel.pricing.parse import parse_description, parse_offers


@functools.cache
def bundled_catalog() -> Catalog:
    """The dated snapshot of ``pricing/data``, judged by the sanity rules; read once."""
    data = resources.files("cloudgavel.pricing") / "data"
    description = parse_description((data / "snapshot.json").read_text(encoding="utf-8"))
    table = (data / description.offers_name).read_text(encoding="utf-8")
    snapshot = parse_offers(table, description)
    return checked_catalog(snapshot.offers, findings=snapshot.findings)
