"""Finding and ending what carries our label, without the database."""

import pytest

from cloudgavel.providers.gcp.sweep import end_tagged, find_tagged
from tests.unit.gcp.project import RUN_ID, a_project, a_request, a_slice, an_offer, settings

B = an_offer(zone="us-central1-b")


def test_everything_of_a_run_is_found_in_all_zones_and_ended():
    with a_project(an_offer(), B, a_slice()) as project:
        offers = (an_offer(), B, a_slice())
        mine = [
            project.provider.launch(a_request(offer, token=str(n))).instance_id
            for n, offer in enumerate(offers)
        ]
        other = project.provider.launch(a_request(B, token="x", run_id="another")).instance_id
        found = find_tagged(project.clients, project.cloud.project, run_id=RUN_ID)
        assert sorted(each.instance_id for each in found.machines) == sorted(mine)
        assert {(each.run_id, each.is_tpu) for each in found.machines} == {
            (RUN_ID, False),
            (RUN_ID, True),
        }
        every = find_tagged(project.clients, project.cloud.project)
        assert len(every.machines) == 4
        in_b = find_tagged(project.clients, project.cloud.project, zones=["us-central1-b"])
        assert {each.zone for each in in_b.machines} == {"us-central1-b"}
        assert end_tagged(project.clients, project.cloud.project, found.machines) == {}
        left = find_tagged(project.clients, project.cloud.project)
        assert [each.instance_id for each in left.machines] == [other]
        assert end_tagged(project.clients, project.cloud.project, found.machines) == {}


def test_what_is_dead_but_there_is_found_too():
    with a_project(an_offer(), a_slice()) as project:
        machine = project.provider.launch(a_request(an_offer(), token="1")).instance_id
        piece = project.provider.launch(a_request(a_slice(), token="2")).instance_id
        project.cloud.power_off(machine)
        project.cloud.interrupt(piece, at_s=project.clock.now_s())
        found = find_tagged(project.clients, project.cloud.project)
        assert {each.instance_id: each.status for each in found.machines} == {
            machine: "TERMINATED",
            piece: "PREEMPTED",
        }
        end_tagged(project.clients, project.cloud.project, found.machines)
        assert not find_tagged(project.clients, project.cloud.project).machines


def test_what_waits_in_a_queue_is_found_and_taken_back():
    with a_project(a_slice(), given=settings(tpu_queue_wait_s=3600.0)) as project:
        project.faults.stocked_out = lambda *_: True
        provider = project.another_process(pause=lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            provider.launch(a_request(a_slice()))
        (waiting,) = find_tagged(project.clients, project.cloud.project, run_id=RUN_ID).machines
        assert waiting.status == "WAITING_FOR_RESOURCES"
        assert end_tagged(project.clients, project.cloud.project, [waiting]) == {}
        assert not find_tagged(project.clients, project.cloud.project).machines


def test_silence_is_told_and_never_taken_for_nothing():
    with a_project(an_offer(), B) as project:
        project.provider.launch(a_request(B))
        project.faults.silent_zones.add("us-central1-b")
        found = find_tagged(project.clients, project.cloud.project)
        assert found.machines == ()
        assert {each.place for each in found.silent} == {"us-central1-b"}
        project.faults.silent_zones.clear()
        project.faults.refuse_next("instances.aggregatedList", 503, "backendError")
        (silent,) = find_tagged(project.clients, project.cloud.project).silent
        assert silent.place == "machines"


def test_a_project_without_the_tpu_interface_has_no_slices():
    with a_project(an_offer()) as project:
        project.faults.refuse_next("queuedResources.list", 403, "SERVICE_DISABLED")
        assert find_tagged(project.clients, project.cloud.project).silent == ()
        project.faults.refuse_next("queuedResources.list", 403, "forbidden")
        assert find_tagged(project.clients, project.cloud.project).silent


def test_an_end_that_was_refused_is_reported_with_its_reason():
    with a_project(an_offer()) as project:
        launched = project.provider.launch(a_request(an_offer()))
        found = find_tagged(project.clients, project.cloud.project)
        project.faults.refuse_next("instances.delete", 403, "forbidden")
        failed = end_tagged(project.clients, project.cloud.project, found.machines)
        assert list(failed) == [launched.instance_id]
        assert "forbidden" in failed[launched.instance_id]
