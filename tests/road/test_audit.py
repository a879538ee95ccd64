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


def test_checkpoints_of_the_watch_are_no_writes_of_a_steady_state_either() -> None:
    def write(name: str, resource: str = "configmaps") -> Write:
        return Write(0.0, OPERATOR, "patch", resource, "", "specfleet", name)

    known = [write("specfleet-watch-0"), write("specfleet-team-watch-63")]
    others = [write("prompts"), write("my-watch-0"), write("specfleet-watch-0", "secrets")]
    assert steady_state_writes([*known, *others], OPERATOR) == others


def test_kubernetes_itself_is_told_from_a_stranger() -> None:
    names = ("system:kube-controller-manager", "system:serviceaccount:kube-system:deployment-controller", "jane")
    found = list(writes_in([line("patch", "deployments", user=name) for name in names]))
    assert [one.by_kubernetes for one in found] == [True, True, False]
