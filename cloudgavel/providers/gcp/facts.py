"""What the project's zones sell and what an image is, as Google tells it; asked once in a while."""

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.failures import call_failed, is_gone, is_switched_off
from cloudgavel.providers.gcp.settings import GcpSettings
from cloudgavel.providers.gcp.translate import last_part

log = logging.getLogger("cloudgavel.gcp")

_NOT_FOR_US = "access is unauthorized"


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoneFacts:
    """What one zone sells."""

    zone: str
    machine_types: frozenset[str]
    """Of those asked about."""
    gpus: Mapping[str, int]
    """Most cards of a machine by Google's name of the GPU."""
    tpu_types: frozenset[str] | None = None
    """``None`` = the zone has no TPUs, or nothing of the run wants them there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFacts:
    """The image that a family stands for now."""

    link: str
    status: str
    disk_gib: int | None


class ImageNotFound(Exception):
    """The family has no image."""


class Facts:
    """Zones and the image, kept for ``settings.facts_age_s``; safe between threads."""

    def __init__(
        self,
        clients: GcpClients,
        *,
        settings: GcpSettings,
        machine_types: Collection[str],
        tpu_zones: Collection[str],
        now_s: Callable[[], float],
    ) -> None:
        self._clients = clients
        self._settings = settings
        self._machine_types = sorted(machine_types)
        self._tpu_zones = sorted(tpu_zones)
        self._now_s = now_s
        self._zones: dict[str, ZoneFacts] | None = None
        self._zones_at_s = float("-inf")
        self._image: ImageFacts | None = None
        self._image_at_s = float("-inf")
        self._lock = threading.Lock()

    def zones(self) -> Mapping[str, ZoneFacts]:
        """Return every zone of the project by name; Google's errors pass if it never answered."""
        with self._lock:
            age_s = self._now_s() - self._zones_at_s
            if self._zones is None or age_s >= self._settings.facts_age_s:
                try:
                    self._zones = self._read_zones()
                except Exception:
                    if self._zones is None:
                        raise
                self._zones_at_s = self._now_s()
            return self._zones

    def image(self) -> ImageFacts:
        """Return the family's newest image; ``ImageNotFound`` if it has none."""
        with self._lock:
            if (
                self._image is None
                or self._now_s() - self._image_at_s >= self._settings.facts_age_s
            ):
                try:
                    self._image = self._read_image()
                except ImageNotFound:
                    raise
                except Exception:
                    if self._image is None:
                        raise
                self._image_at_s = self._now_s()
            return self._image

    def _read_zones(self) -> dict[str, ZoneFacts]:
        zones: dict[str, ZoneFacts] = {}
        if self._machine_types:
            zones = self._read_compute_zones()
        with ThreadPoolExecutor(max_workers=max(1, min(len(self._tpu_zones), 16))) as pool:
            read = dict(
                zip(self._tpu_zones, pool.map(self._tpu_types, self._tpu_zones), strict=True)
            )
        for zone, types in read.items():
            if types is None:
                continue
            known = zones.get(zone) or ZoneFacts(zone=zone, machine_types=frozenset(), gpus={})
            zones[zone] = replace(known, tpu_types=types)
        return zones

    def _read_compute_zones(self) -> dict[str, ZoneFacts]:
        asked = " OR ".join(f'(name = "{name}")' for name in self._machine_types)
        types: dict[str, set[str]] = {}
        for scope, found in self._aggregated("compute.machine_types", {"filter": asked}):
            zone_types = types.setdefault(last_part(scope), set())
            zone_types.update(each.name for each in found.machine_types)
        gpus: dict[str, dict[str, int]] = {}
        for scope, found in self._aggregated("compute.accelerator_types", {}):
            gpus[last_part(scope)] = {
                each.name: int(each.maximum_cards_per_instance) for each in found.accelerator_types
            }
        return {
            zone: ZoneFacts(
                zone=zone, machine_types=frozenset(types[zone]), gpus=gpus.get(zone, {})
            )
            for zone in types
        }

    def _aggregated(self, service: str, request: Mapping[str, Any]) -> list[tuple[str, Any]]:
        asked = {"project": self._settings.project, "max_results": 500, **request}
        return list(self._clients.call(service, "aggregated_list", asked))

    def _tpu_types(self, zone: str) -> frozenset[str] | None:
        parent = f"projects/{self._settings.project}/locations/{zone}"
        try:
            listed = self._clients.call("tpu", "list_accelerator_types", {"parent": parent})
            return frozenset(each.type_ for each in listed)
        except Exception as error:
            # The zone has no TPUs, or not for this project: Google says both in one sentence.
            if is_gone(error) or _NOT_FOR_US in str(error):
                return None
            if is_switched_off(error):
                log.warning("%s", call_failed(error, f"look up the TPUs of {zone}").message)
                return None
            raise

    def _read_image(self) -> ImageFacts:
        project, family = self._settings.image_project, self._settings.image_family
        try:
            image = self._clients.call(
                "compute.images", "get_from_family", {"project": project, "family": family}
            )
        except Exception as error:
            if is_gone(error):
                raise ImageNotFound(
                    f"there is no image of the family {family} in {project}"
                ) from error
            raise
        return ImageFacts(
            link=f"projects/{project}/global/images/{image.name}",
            status=str(image.status),
            disk_gib=int(image.disk_size_gb) or None,
        )
