"""Several clouds as one provider: each offer and each machine goes to the cloud that it is of."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import LaunchRequest, ListedInstance, Provider, Quota
from cloudgavel.providers.failures import CallFailed, FailureKind, LaunchFailed

log = logging.getLogger("cloudgavel.clouds")
Answer = TypeVar("Answer")


class DispatchingProvider:
    """Implements ``Provider`` over clouds by the name that their offers begin with.

    A cloud that gives no answer does not hide the others: what it last said stands for it, with
    what was launched there since. Where it never said anything there is nothing to stand for it:
    its offers are left out, but a list without its machines would make them look lost, so that
    ``list_instances`` raises its failure. Safe between threads where the clouds are.
    """

    name = "clouds"

    def __init__(self, clouds: Mapping[str, Provider]) -> None:
        """``clouds`` by the ``provider`` of their offers; at least one."""
        if not clouds:
            raise ValueError("there is no cloud")
        self._clouds = dict(clouds)
        self._lock = threading.Lock()
        self._offers: dict[str, Sequence[Offer]] = {}
        self._quotas: dict[str, Sequence[Quota]] = {}
        self._lists: dict[tuple[str, str], dict[str, ListedInstance]] = {}
        """By cloud and run: the last list, and what was launched since."""
        self._heard: set[tuple[str, str]] = set()
        """Those that were listed at least once."""
        self._cloud_of: dict[str, str] = {}

    def offers(self) -> Sequence[Offer]:
        """Return every cloud's offers; ``CallFailed`` when nothing is known of any."""
        return self._everywhere(lambda cloud: cloud.offers(), self._offers)

    def boot_s(self, offer: Offer) -> float:
        """Return its cloud's expectation; ``KeyError`` for a cloud that is not there."""
        return self._clouds[offer.provider].boot_s(offer)

    def quotas(self) -> Sequence[Quota]:
        """Return every cloud's limits; unknown ones of a silent cloud are left out."""
        return self._everywhere(lambda cloud: cloud.quotas(), self._quotas)

    def launch(self, request: LaunchRequest) -> ListedInstance:
        """Rent from the offer's cloud."""
        name = request.offer.provider
        cloud = self._clouds.get(name)
        if cloud is None:
            raise LaunchFailed(
                FailureKind.INVALID,
                f"{request.offer.offer_id}: this run has no cloud `{name}`",
                offer_id=request.offer.offer_id,
                code="NoSuchCloud",
            )
        launched = cloud.launch(request)
        with self._lock:
            self._cloud_of[launched.instance_id] = name
            self._lists.setdefault((name, request.run_id), {})[launched.instance_id] = launched
        return launched

    def list_instances(self, run_id: str) -> Sequence[ListedInstance]:
        """Return the run's instances in every cloud, asked at one time."""
        found: list[ListedInstance] = []
        silent: list[CallFailed] = []
        listed = self._ask_all(lambda cloud: cloud.list_instances(run_id))
        for name, answer in listed.items():
            key = (name, run_id)
            with self._lock:
                if not isinstance(answer, CallFailed):
                    self._lists[key] = {each.instance_id: each for each in answer}
                    self._cloud_of |= dict.fromkeys(self._lists[key], name)
                    self._heard.add(key)
                elif key in self._heard:
                    log.warning("%s; %s is taken to be as it was", answer.message, name)
                    silent.append(answer)
                else:
                    raise answer
                found += self._lists[key].values()
        if len(silent) == len(self._clouds):
            raise silent[0]
        return found

    def price_changes(self, instance_id: str, since_s: float) -> Sequence[tuple[float, float]]:
        """Return its cloud's changes; none of an instance that was never seen."""
        name = self._cloud_of.get(instance_id)
        return () if name is None else self._clouds[name].price_changes(instance_id, since_s)

    def terminate(self, instance_id: str) -> None:
        """Ask its cloud for the end; every cloud, for an instance that was never seen."""
        name = self._cloud_of.get(instance_id)
        if name is not None:
            self._clouds[name].terminate(instance_id)
            return
        failures = []
        for cloud in self._clouds.values():
            try:
                cloud.terminate(instance_id)
            except CallFailed as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _everywhere(
        self, ask: Callable[[Provider], Sequence[Answer]], known: dict[str, Sequence[Answer]]
    ) -> Sequence[Answer]:
        failures = []
        for name, answer in self._ask_all(ask).items():
            if not isinstance(answer, CallFailed):
                known[name] = answer
                continue
            failures.append(answer)
            log.warning("%s", answer.message)
        if len(failures) == len(self._clouds) and not known:
            raise failures[0]
        return [each for name in self._clouds for each in known.get(name, ())]

    def _ask_all(
        self, ask: Callable[[Provider], Sequence[Answer]]
    ) -> dict[str, Sequence[Answer] | CallFailed]:
        """Ask every cloud at one time; failures other than ``CallFailed`` pass."""
        with ThreadPoolExecutor(max_workers=len(self._clouds)) as pool:
            futures = {name: pool.submit(ask, cloud) for name, cloud in self._clouds.items()}
        answers: dict[str, Sequence[Answer] | CallFailed] = {}
        for name, future in futures.items():
            error = future.exception()
            if error is None:
                answers[name] = future.result()
            elif isinstance(error, CallFailed):
                answers[name] = error
            else:
                raise error
        return answers
