"""The channel through the store: nothing lost, the higher sequence wins, silence costs little."""

import math

import pytest

from cloudgavel.clock import VirtualClock
from cloudgavel.messages import layout
from cloudgavel.messages.codec import decode_orders, encode_report
from cloudgavel.messages.orders import Orders
from cloudgavel.messages.report import Report
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.store import StoreUnreachable
from cloudgavel.providers.store_channel import StoreChannel

START_AT_S = 1_790_000_000.0


class Flaky(FileStore):
    """A directory that can be cut off, and counts what is read."""

    down = False
    reads = 0

    def _check(self):
        if self.down:
            raise StoreUnreachable("reach", "x", "cut off", self.url)

    def get(self, key):
        self._check()
        self.reads += key.endswith("report.json")
        return super().get(key)

    def list(self, prefix):
        self._check()
        return super().list(prefix)

    def put_if_version(self, key, data, version):
        self._check()
        return super().put_if_version(key, data, version)


@pytest.fixture
def store(tmp_path):
    return Flaky(tmp_path / "store")


@pytest.fixture
def clock():
    return VirtualClock(START_AT_S)


@pytest.fixture
def channel(store, clock):
    return StoreChannel(store, now_s=clock.now_s)


def orders(sequence, instance_id="i-1"):
    return Orders(run_id="run", instance_id=instance_id, sequence=sequence, jobs=(), lease_s=300.0)


def a_report(instance_id="i-1", **changes):
    fields = {
        "run_id": "run",
        "instance_id": instance_id,
        "sequence_seen": 0,
        "heartbeat_at_s": START_AT_S,
        "agent_pid": 1,
        "jobs": (),
    }
    return Report(**(fields | changes))


def written(store, instance_id="i-1"):
    return decode_orders(store.get(layout.orders_key(instance_id))).sequence


def say(store, report):
    store.put(layout.report_key(report.instance_id), encode_report(report))


def test_orders_arrive_and_a_lower_sequence_changes_nothing(channel, store):
    channel.send(orders(5))
    assert written(store) == 5
    channel.send(orders(4))
    assert written(store) == 5
    channel.send(orders(6))
    assert written(store) == 6


def test_orders_for_a_store_that_is_away_are_sent_when_it_is_back(channel, store):
    store.down = True
    channel.send(orders(1))
    channel.send(orders(2))
    channel.send(orders(7, instance_id="i-2"))
    assert channel.heard_since_s() == math.inf
    channel.reports()
    store.down = False
    channel.reports()
    assert channel.heard_since_s() == START_AT_S
    assert (written(store), written(store, "i-2")) == (2, 7)


def test_reports_are_those_of_every_instance_and_survive_an_outage(channel, store, clock):
    say(store, a_report("i-1"))
    say(store, a_report("i-2"))
    assert sorted(channel.reports()) == ["i-1", "i-2"]
    store.down = True
    clock.advance_to(START_AT_S + 600.0)
    assert sorted(channel.reports()) == ["i-1", "i-2"]
    store.down = False
    say(store, a_report("i-1", heartbeat_at_s=START_AT_S + 600.0))
    clock.advance_to(START_AT_S + 700.0)
    assert channel.reports()["i-1"].heartbeat_at_s == START_AT_S + 600.0


def test_the_silent_are_read_less_and_less_often_but_never_given_up(channel, store, clock):
    say(store, a_report())
    for step in range(1000):
        clock.advance_to(START_AT_S + 2.0 * (step + 1))
        channel.reports()
    assert store.reads < 120
    say(store, a_report(heartbeat_at_s=START_AT_S + 2000.0))
    clock.advance_to(START_AT_S + 2060.0)
    assert channel.reports()["i-1"].heartbeat_at_s == START_AT_S + 2000.0


def test_one_that_speaks_is_read_every_time(channel, store, clock):
    for step in range(20):
        at_s = START_AT_S + 2.0 * step
        clock.advance_to(at_s)
        say(store, a_report(heartbeat_at_s=at_s))
        assert channel.reports()["i-1"].heartbeat_at_s == at_s


def test_what_is_no_report_is_passed_over(channel, store):
    store.put(layout.report_key("i-1"), b"half a rep")
    store.put(layout.report_key("i-2"), encode_report(a_report("i-2")))
    assert list(channel.reports()) == ["i-2"]
