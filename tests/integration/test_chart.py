"""The chart on a real API server: it is taken as it is rendered, and its rights are enough and no more."""

from pathlib import Path

import pytest
import yaml
from helm_python import Chart
from specfleet.kube import kinds
from specfleet.kube.kinds import Kind

from tests.integration.conftest import Object, Server

pytestmark = pytest.mark.integration

CHART = Path(__file__).parents[2] / "charts" / "specfleet"
OPERATORS, TEAM, OTHER = "operators", "team-a", "team-b"

CHILDREN = [kind for kind in kinds.WATCHED if kind is not kinds.POD]
NEEDED: list[tuple[Kind, str, str]] = [
    *((kind, verb, "") for kind in (*kinds.WATCHED, kinds.SPECULATIVE_DEPLOYMENT) for verb in ("get", "list", "watch")),
    *((kind, verb, "") for kind in CHILDREN for verb in ("create", "patch", "delete")),
    (kinds.SPECULATIVE_DEPLOYMENT, "patch", "status"),
    (kinds.SPECULATIVE_DEPLOYMENT, "update", "finalizers"),
    (kinds.POD, "delete", ""),
    (kinds.EVENT, "create", ""),
]
REFUSED: list[tuple[str, str]] = [
    ("get", "secrets"),
    ("list", "secrets"),
    ("update", "speculativedeployments.specfleet.dev"),
    ("patch", "speculativedeployments.specfleet.dev"),
    ("delete", "speculativedeployments.specfleet.dev"),
    ("create", "pods"),
    ("create", "nodes"),
    ("create", "serviceaccounts"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
    ("update", "deployments.apps"),
]


def _rendered(values: Object, release: str) -> list[Object]:
    chosen = {"image": {"repository": "registry.example.com/specfleet"}, "crds": {"enabled": False}, **values}
    with Chart.load(CHART) as chart:
        texts = chart.render(values=chosen, name=release, namespace=OPERATORS)
    manifests = (text for path, text in sorted(texts.items()) if path.endswith(".yaml"))
    return [one for text in manifests for one in yaml.safe_load_all(text) if one]


def _install(server: Server, release: str, values: Object) -> str:
    """Apply the chart; returns the operator's user name."""
    for namespace in (OPERATORS, TEAM, OTHER):
        server.run("create", "namespace", namespace)
    done = server.run(
        "apply",
        "--server-side",
        "--validate=strict",
        "-f",
        "-",
        stdin={"apiVersion": "v1", "kind": "List", "items": _rendered(values, release)},
    )
    assert done.returncode == 0, done.stderr
    return f"system:serviceaccount:{OPERATORS}:{release}"


@pytest.fixture(scope="module")
def everywhere(server: Server) -> str:
    return _install(server, "specfleet", {"prometheus": {"authSecrets": ["prometheus-token"]}})


@pytest.fixture(scope="module")
def one_team(server: Server) -> str:
    return _install(server, "specfleet-team", {"namespaces": [TEAM], "shard": "team", "rbac": {"aggregate": False}})


def _may(
    server: Server, user: str, verb: str, resource: str, namespace: str, name: str = "", subresource: str = ""
) -> bool:
    plural, _, group = resource.partition(".")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "namespace": namespace,
        "name": name,
        "subresource": subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def _resource(kind: Kind) -> str:
    group = kind.api_version.rpartition("/")[0]
    return f"{kind.plural}.{group}" if group else kind.plural


def test_the_operator_may_do_what_it_does(server: Server, everywhere: str) -> None:
    missing = [
        f"{verb} {_resource(kind)} {subresource}".strip()
        for kind, verb, subresource in NEEDED
        if not _may(server, everywhere, verb, _resource(kind), OTHER, subresource=subresource)
    ]
    assert missing == []


def test_the_operator_may_not_do_more(server: Server, everywhere: str) -> None:
    granted = [f"{verb} {resource}" for verb, resource in REFUSED if _may(server, everywhere, verb, resource, TEAM)]
    assert granted == []


def test_it_reads_a_node_by_name_and_only_where_it_works_for_the_whole_cluster(
    server: Server, everywhere: str, one_team: str
) -> None:
    assert _may(server, everywhere, "get", "nodes", "")
    assert not _may(server, everywhere, "list", "nodes", "")
    assert not _may(server, one_team, "get", "nodes", "")


def test_the_only_secret_it_reads_is_the_named_one_in_its_own_namespace(server: Server, everywhere: str) -> None:
    assert _may(server, everywhere, "get", "secrets", OPERATORS, "prometheus-token")
    assert not _may(server, everywhere, "get", "secrets", OPERATORS, "another")
    assert not _may(server, everywhere, "get", "secrets", TEAM, "prometheus-token")
    assert not _may(server, everywhere, "list", "secrets", OPERATORS)


def test_with_namespaces_its_rights_end_there(server: Server, one_team: str) -> None:
    assert _may(server, one_team, "patch", "deployments.apps", TEAM)
    assert not _may(server, one_team, "patch", "deployments.apps", OTHER)
    assert not _may(server, one_team, "list", "pods", OPERATORS)


def test_each_shard_may_renew_its_own_lease_only(server: Server, one_team: str, everywhere: str) -> None:
    leases = "leases.coordination.k8s.io"
    assert _may(server, one_team, "update", leases, OPERATORS, "specfleet-team")
    assert not _may(server, one_team, "update", leases, OPERATORS, "specfleet")
    assert _may(server, everywhere, "update", leases, OPERATORS, "specfleet")


def test_each_shard_may_keep_its_own_checkpoints_only(server: Server, one_team: str) -> None:
    for verb in ("get", "create", "patch", "delete"):
        assert _may(server, one_team, verb, "configmaps", OPERATORS, "specfleet-team-watch-63")
        assert not _may(server, one_team, verb, "configmaps", OPERATORS, "specfleet-watch-63")
        assert not _may(server, one_team, verb, "configmaps", OPERATORS, "another")
    assert not _may(server, one_team, "list", "configmaps", OPERATORS)


def test_the_pod_is_admitted_where_the_restricted_standard_is_enforced(server: Server, everywhere: str) -> None:
    del everywhere
    label = "pod-security.kubernetes.io/enforce=restricted"
    assert server.run("label", "namespace", OPERATORS, label, "--overwrite").returncode == 0
    template = next(one for one in _rendered({}, "specfleet") if one["kind"] == "Deployment")["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {**template["spec"], "serviceAccountName": "specfleet"}}
    pod["metadata"] = {"name": "restricted", "namespace": OPERATORS, "labels": template["metadata"]["labels"]}
    assert server.dry_run(pod) == ""
    worse = {**pod, "spec": {**pod["spec"], "hostNetwork": True}}
    assert "PodSecurity" in server.dry_run(worse)
