"""Kubernetes objects that several parts of the test cluster need, as JSON for `kubectl apply`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

Object = Mapping[str, object]


def render(*objects: Object) -> str:
    """Return objects as one List."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def namespace(name: str) -> Object:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def cluster_role(name: str, rules: Sequence[Object], *subjects: Object) -> tuple[Object, Object]:
    """A ClusterRole and its binding."""
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": subjects,
    }
    return role, binding
