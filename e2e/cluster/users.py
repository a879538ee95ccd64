"""The users of the test cluster and their kubeconfig files."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class User:
    """One static-token user; `name` is what RBAC and the audit log see."""

    key: str
    name: str
    groups: tuple[str, ...] = ()


ADMIN = User("admin", "admin", ("system:masters",))
CONTROLLER_MANAGER = User("controller-manager", "system:kube-controller-manager")
SCHEDULER = User("scheduler", "system:kube-scheduler")
PROXY = User("proxy", "system:kube-proxy")
COREDNS = User("coredns", "coredns")
CONTOUR = User("contour", "contour", ("system:masters",))
PROMETHEUS_OPERATOR = User("prometheus-operator", "prometheus-operator", ("system:masters",))


def node_user(number: int) -> User:
    """The kubelet's user of one node."""
    return User(f"node{number}", f"system:node:node{number}", ("system:nodes",))


def write_users(directory: Path, server: str, authority: Path, users: list[User]) -> Path:
    """Write KEY.kubeconfig for every user and return the token file for the API server."""
    directory.mkdir(parents=True, exist_ok=True)
    authority_data = base64.b64encode(authority.read_bytes()).decode()
    rows = []
    for user in users:
        token = secrets.token_hex(16)
        groups = ",".join(user.groups)
        rows.append(f'{token},{user.name},{user.key},"{groups}"')
        config = kubeconfig(server, authority_data, token)
        path = directory / f"{user.key}.kubeconfig"
        path.write_text(json.dumps(config, indent=1))
        path.chmod(0o600)
    tokens = directory / "tokens.csv"
    tokens.write_text("\n".join(rows) + "\n")
    tokens.chmod(0o600)
    return tokens


def kubeconfig(server: str, authority_data: str, token: str) -> dict[str, object]:
    """One cluster, one user, one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": authority_data}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        "current-context": "test",
    }
