import json

from e2e.road.audit import Write, steady_state_writes, writes_in

OPERATOR = "system:serviceaccount:specfleet:specfleet"


def line(verb: str, resource: str, user: str = OPERATOR, code: int = 200, **more: object) -> str:
    entry = {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": resource, "namespace": "demo", "name": "x"},
        "responseStatus": {"code": code},
        "stageTimestamp": "2026-01-01T00:00:10.5Z",
        **more,
    }
    return json.dumps(entry, separators=(",", ":"))


def test_only_successful_writes_that_have_ended_count() -> None:
    log = [
        line("patch", "deployments"),
        line("get", "deployments"),
        line("watch", "deployments"),
        line("create", "jobs", code=409),
        line("create", "jobs", stage="ResponseStarted"),
        '{"verb":"patch","half',
    ]
    assert [one.resource for one in writes_in(log)] == ["deployments"]


def test_writes_are_chosen_by_time() -> None:
    moment = 1767225610.5
    assert [one.time for one in writes_in([line("patch", "deployments")], since=moment)] == [moment]
    assert not list(writes_in([line("patch", "deployments")], since=moment + 1))


def test_lease_renewals_and_others_are_no_writes_of_a_steady_state() -> None:
    log = [line("patch", "leases"), line("update", "deployments", user="system:node:n1"), line("patch", "events")]
    found = steady_state_writes(writes_in(log), OPERATOR)
    assert [one.resource for one in found] == ["events"]


def write(name: str, resource: str = "configmaps", time: float = 0.0) -> Write:
    return Write(time, OPERATOR, "patch", resource, "", "specfleet", name)


def test_checkpoints_of_the_watch_are_no_writes_of_a_steady_state_either() -> None:
    known = [write("specfleet-watch-0"), write("specfleet-team-watch-63")]
    others = [write("prompts"), write("my-watch-0"), write("specfleet-watch-0", "secrets")]
    assert steady_state_writes([*known, *others], OPERATOR) == others


def test_checkpoints_that_are_written_all_the_time_are_found() -> None:
    times = [0.0, 300.0, 3600.0 + 300.0, 3600.0 + 600.0]
    writes = [write("specfleet-watch-0", time=time) for time in times]
    others = [write(f"specfleet-watch-{number}", time=300.0) for number in (1, 2)]
    assert [one.time for one in steady_state_writes([*writes, *others], OPERATOR)] == [300.0, 4200.0]


def test_kubernetes_itself_is_told_from_a_stranger() -> None:
    names = ("system:kube-controller-manager", "system:serviceaccount:kube-system:deployment-controller", "jane")
    found = list(writes_in([line("patch", "deployments", user=name) for name in names]))
    assert [one.by_kubernetes for one in found] == [True, True, False]
