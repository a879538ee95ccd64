"""etcd and the Kubernetes control plane, for the whole cluster and, without root, for integration tests."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from e2e.cluster import users
from e2e.cluster.build import binary, build_parts
from e2e.cluster.certificates import Certificates, make_certificates
from e2e.cluster.parts import CONTROL_PLANE_PARTS, ETCD, KUBE
from e2e.cluster.process import Daemons, end, run, wait_for
from e2e.cluster.settings import KUBERNETES_VIP, SERVICE_CIDR, ClusterError
from e2e.cluster.wheels import install_wheels, kubectl_binary

_IN_CLUSTER_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
)
_READY_SECONDS = 90.0
# One line per finished request: who (user, userAgent), what (verb, objectRef), answer; no bodies.
AUDIT_POLICY: dict[str, object] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


def _as_it_is(argv: Sequence[str | Path]) -> list[str]:
    return [str(word) for word in argv]


@dataclass(frozen=True)
class Endpoint:
    """Where the API server and etcd listen; `wrap` puts a command into the network namespace they live in."""

    address: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    wrap: Callable[[Sequence[str | Path]], list[str]] = _as_it_is

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self.address}:{self.api_port}"

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.address.startswith("127.")


class ControlPlane:
    """A control plane in a folder of its own; as a context manager it is up inside and gone after.

    `endpoint` None takes free ports on loopback, so several can run at once. Leaving the context ends the programs and
    keeps the folder with the logs and the audit log; entering it deletes what an earlier run left there.
    """

    def __init__(
        self,
        directory: Path,
        *,
        controller_manager: bool = False,
        endpoint: Endpoint | None = None,
        accounts: Sequence[users.User] = (users.ADMIN,),
    ) -> None:
        self.directory = directory.resolve()
        self.controller_manager = controller_manager
        self.daemons = Daemons(self.directory)
        self.accounts = [*accounts]
        if controller_manager and users.CONTROLLER_MANAGER not in self.accounts:
            self.accounts.append(users.CONTROLLER_MANAGER)
        self._endpoint = endpoint

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.kubeconfig_of(users.ADMIN)

    @property
    def audit_log(self) -> Path:
        """The API server's audit log: one JSON object per finished request."""
        return self.directory / "audit.log"

    @property
    def kubectl(self) -> list[str]:
        """The start of a kubectl command line against this API server as admin."""
        return [str(kubectl_binary()), f"--kubeconfig={self.kubeconfig}"]

    def kubeconfig_of(self, user: users.User) -> Path:
        """The kubeconfig of one of the accounts."""
        return self.directory / "users" / f"{user.key}.kubeconfig"

    def apply(self, manifest: str) -> None:
        """Server-side apply a manifest as admin.

        Raises ClusterError with the API server's answer when it is refused.
        """
        apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=e2e-cluster", "-f", "-"]
        run([*self.kubectl, *apply], stdin=manifest)

    def install_crds(self, *paths: Path) -> None:
        """Apply CRDs from files and folders, and return when the API server serves them.

        Raises ClusterError with the API server's answer when one is refused.
        """
        files = [word for path in paths for word in ("-f", path)]
        run([*self.kubectl, "apply", "--server-side", "--force-conflicts", *files])
        log = self.daemons.log("kube-apiserver")
        # kubectl wait ends with an error on a CRD that has no conditions at all yet: ask again.
        established = [*self.kubectl, "wait", "--for=condition=Established", "--timeout=10s", *files]
        wait_for("the CRDs are established", lambda: run(established, check=False).returncode == 0, seconds=60, log=log)
        listed = run([*self.kubectl, "get", "-o", "json", *files]).stdout
        wait_for("the CRDs are in discovery", lambda: self._serves(json.loads(listed)["items"]), seconds=60, log=log)

    def _serves(self, crds: list[dict[str, Any]]) -> bool:
        # A controller that starts between Established and discovery ends, or leaves the kind out for good.
        known = run([*self.kubectl, "api-resources", "--no-headers", "-o", "name"], check=False).stdout.split()
        return {crd["metadata"]["name"] for crd in crds}.issubset(known)

    def start(self) -> None:
        """Start what isn't running and return when the API server is ready.

        Raises ClusterError naming the log of the program that failed.
        """
        endpoint, certificates = self.prepare()
        self._start_etcd(endpoint)
        self._start_api_server(endpoint, certificates)
        if self.controller_manager:
            self._start_controller_manager(endpoint, certificates)

    def stop(self) -> None:
        """End the programs; the folder stays for whoever wants the logs."""
        # The API server first: once etcd is gone it hangs on SIGTERM.
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            self.daemons.stop(name, grace_seconds=1.0)
        end(self.daemons.marked(), grace_seconds=0.5)

    def remove(self) -> None:
        """End the programs and delete the folder."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        self.remove()
        install_wheels()
        build_parts(CONTROL_PLANE_PARTS)
        with ExitStack() as stack:
            stack.callback(self.stop)
            self.start()
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def prepare(self) -> tuple[Endpoint, Certificates]:
        """Make the certificates and the kubeconfig files, which programs that start early need."""
        endpoint = self._endpoint or _loopback_endpoint(self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        certificates = Certificates(self.directory / "certificates")
        tokens = self.directory / "users" / "tokens.csv"
        if not tokens.exists():
            addresses = sorted({KUBERNETES_VIP, endpoint.address, "127.0.0.1"})
            make_certificates(certificates.directory, _IN_CLUSTER_NAMES, addresses)
            (self.directory / "audit-policy.yaml").write_text(json.dumps(AUDIT_POLICY))
            users.write_users(tokens.parent, endpoint.server, certificates.authority, self.accounts)
        return endpoint, certificates

    def _start_etcd(self, endpoint: Endpoint) -> None:
        client = f"http://127.0.0.1:{endpoint.etcd_port}"
        peer = f"http://127.0.0.1:{endpoint.etcd_peer_port}"
        command: list[str | Path] = [
            binary(ETCD),
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        ]
        self.daemons.start("etcd", endpoint.wrap(command))

    def _start_api_server(self, endpoint: Endpoint, certificates: Certificates) -> None:
        command: list[str | Path] = [
            binary(KUBE, "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{endpoint.etcd_port}",
            f"--secure-port={endpoint.api_port}",
            f"--bind-address={endpoint.address if endpoint.on_loopback else '0.0.0.0'}",
            f"--advertise-address={endpoint.address}",
            f"--tls-cert-file={certificates.server}",
            f"--tls-private-key-file={certificates.server_key}",
            f"--cert-dir={certificates.directory}",
            f"--service-account-key-file={certificates.service_account_public_key}",
            f"--service-account-signing-key-file={certificates.service_account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--token-auth-file={self.directory / 'users' / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            # Else logs and exec try to resolve the node's name.
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--allow-privileged",
            f"--audit-log-path={self.audit_log}",
            f"--audit-policy-file={self.directory / 'audit-policy.yaml'}",
        ]
        if endpoint.on_loopback:
            # EndpointSlices refuse loopback addresses.
            command.append("--endpoint-reconciler-type=none")
        pid = self.daemons.start("kube-apiserver", endpoint.wrap(command))
        log = self.daemons.log("kube-apiserver")
        wait_for("the API server is ready", self._answers, seconds=_READY_SECONDS, log=log, pid=pid)

    def _answers(self) -> bool:
        query = [*self.kubectl, "get", "--raw", "/readyz", "--request-timeout=2s"]
        return subprocess.run(query, capture_output=True, check=False).stdout == b"ok"

    def _start_controller_manager(self, endpoint: Endpoint, certificates: Certificates) -> None:
        config = self.kubeconfig_of(users.CONTROLLER_MANAGER)
        command: list[str | Path] = [
            binary(KUBE, "kube-controller-manager"),
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            f"--cert-dir={certificates.directory}",
            f"--service-account-private-key-file={certificates.service_account_key}",
            f"--root-ca-file={certificates.authority}",
            # Its own port would clash where several run on one loopback; nothing here reads it.
            "--secure-port=0",
        ]
        self.daemons.start("kube-controller-manager", endpoint.wrap(command))


def _loopback_endpoint(directory: Path) -> Endpoint:
    """Three free ports, remembered in the folder so that a second start finds the same API server."""
    known = directory / "ports.json"
    if known.exists():
        ports = json.loads(known.read_text())
    else:
        directory.mkdir(parents=True, exist_ok=True)
        ports = _free_ports(3)
        known.write_text(json.dumps(ports))
    return Endpoint("127.0.0.1", *ports)


def _free_ports(count: int) -> list[int]:
    # Below the ephemeral range, and handed out under a lock in turn, so that two control planes that start at the
    # same moment don't choose the same ports before either listens.
    counter = Path(tempfile.gettempdir()) / f"specfleet-ports-{os.getuid()}"
    with counter.open("a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        shared.seek(0)
        candidate = int(shared.read() or 20000)
        free: list[int] = []
        for _ in range(10000):
            candidate = candidate + 1 if candidate < 29999 else 20000
            if _is_free(candidate):
                free.append(candidate)
            if len(free) == count:
                shared.truncate(0)
                shared.write(str(candidate))
                return free
    raise ClusterError(f"no {count} free ports between 20000 and 29999 on loopback")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
