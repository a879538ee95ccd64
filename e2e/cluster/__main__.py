"""The test cluster of specfleet: a real Kubernetes on one Linux machine, as root, without a container engine.

  python3 -m e2e.cluster up [--nodes N]       build what is missing, start everything; nothing to do when it is up
  python3 -m e2e.cluster env                  KUBECONFIG, KUBECTL, GATEWAY_URL, PROMETHEUS_URL, ... as shell words
  python3 -m e2e.cluster image TAG CONTEXT    a Dockerfile to an image on every node
  python3 -m e2e.cluster down                 remove it all; what is built stays in the cache

CLUSTER chooses the cluster: embedded (default), existing (KUBECONFIG names it) or kind (needs a Docker engine).
SPECFLEET_CACHE is the folder for everything built and running (default ~/.cache/specfleet).
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from e2e.cluster import cluster, external, monitoring
from e2e.cluster.build import build_parts, say
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.images import ImageBuild, build_image
from e2e.cluster.parts import CONTROL_PLANE_PARTS
from e2e.cluster.settings import ClusterError
from e2e.cluster.wheels import install_wheels


def _kind_of_cluster() -> str:
    chosen = os.environ.get("CLUSTER", "embedded")
    if chosen not in {"embedded", "existing", "kind"}:
        raise ClusterError(f"CLUSTER={chosen}: it is embedded, existing or kind")
    return chosen


def _up(arguments: argparse.Namespace) -> None:
    chosen = _kind_of_cluster()
    if chosen == "existing":
        external.check_existing()
    elif chosen == "kind":
        external.kind_up()
    else:
        cluster.up(arguments.nodes)


def _down(_: argparse.Namespace) -> None:
    chosen = _kind_of_cluster()
    if chosen == "existing":
        say("CLUSTER=existing: there is nothing of ours to take down")
    elif chosen == "kind":
        external.kind_down()
    else:
        cluster.down()
        say("the cluster is down; the cache with everything built stays")


def _purge(_: argparse.Namespace) -> None:
    cluster.purge()


def _env(_: argparse.Namespace) -> None:
    found = external.existing_environment() if _kind_of_cluster() == "existing" else cluster.environment()
    for name, value in found.items():
        print(f"export {name}={shlex.quote(value)}")


def _status(_: argparse.Namespace) -> None:
    lines = cluster.status_lines()
    print("\n".join(lines) if lines else "no cluster is up")
    state = cluster.read_state()
    if state is None or state.broken:
        sys.exit(1)


def _build(_: argparse.Namespace) -> None:
    cluster.build_everything()
    say("everything is built")


def _pairs(words: list[str], option: str) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ClusterError(f"{option} {word}: give it as NAME=VALUE")
        pairs[name] = value
    return pairs


def _image(arguments: argparse.Namespace) -> None:
    context = arguments.context.resolve()
    named = _pairs(arguments.build_context, "--build-context")
    build = ImageBuild(
        tag=arguments.tag,
        context=context,
        file=(arguments.file or context / "Dockerfile").resolve(),
        contexts={name: Path(path).resolve() for name, path in named.items()},
        arguments=_pairs(arguments.build_arg, "--build-arg"),
    )
    build_image(build)


def _control_plane(arguments: argparse.Namespace) -> None:
    plane = ControlPlane(arguments.directory, controller_manager=arguments.controller_manager)
    if arguments.action == "down":
        plane.remove()
        return
    install_wheels()
    build_parts(CONTROL_PLANE_PARTS)
    plane.start()
    print(f"export KUBECONFIG={shlex.quote(str(plane.kubeconfig))}")
    print(f"export AUDIT_LOG={shlex.quote(str(plane.audit_log))}")


def _prometheus(arguments: argparse.Namespace) -> None:
    cluster.environment()
    monitoring.set_prometheus(cluster.control_plane().kubectl, running=arguments.action == "start")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m e2e.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(function=function)
        return made

    up = command("up", _up, "start the cluster and return when everything in it answers")
    up.add_argument("--nodes", type=int, default=1, help="how many nodes (1 to 5; default 1); more can be added later")
    command("down", _down, "remove everything that up made, also after a run that was killed")
    command("purge", _purge, "down, and delete the cache with everything built")
    command("status", _status, "list the programs; exit 1 unless all of them run")
    command("env", _env, 'print the addresses: eval "$(python3 -m e2e.cluster env)"')
    command("build", _build, "compile and install all parts; does nothing when they are there")
    image = command("image", _image, "build an image with buildah and put it on every node")
    image.add_argument("tag", help="its name, as a pod spells it")
    image.add_argument("context", type=Path, help="the build context")
    image.add_argument("--file", type=Path, help="the Dockerfile (default CONTEXT/Dockerfile)")
    image.add_argument("--build-context", action="append", default=[], metavar="NAME=PATH")
    image.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    plane = command("control-plane", _control_plane, "etcd and the API server alone: no root, no node, loopback only")
    plane.add_argument("action", choices=["up", "down"])
    plane.add_argument("directory", type=Path, help="its folder; several can run, each in its own")
    plane.add_argument("--controller-manager", action="store_true", help="with kube-controller-manager")
    outage = command("prometheus", _prometheus, "stop or start the cluster's Prometheus, for tests of an outage")
    outage.add_argument("action", choices=["stop", "start"])
    return parser


def main() -> None:
    """Run one command; errors are told to the user in one block and end with 1."""
    arguments = _parser().parse_args()
    try:
        arguments.function(arguments)
    except ClusterError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted: run the same command again, or `python3 -m e2e.cluster down`")


if __name__ == "__main__":
    main()
