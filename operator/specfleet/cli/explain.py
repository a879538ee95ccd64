"""`kubectl specfleet explain`: why the present state of a deployment holds, and what would change it."""

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from specfleet.cli.exit_codes import OK, REFUSED, UNUSABLE_INPUT
from specfleet.cli.help_text import HelpFormatter, examples
from specfleet.cli.stored import UnusableInputError, add_source, cluster_flags, read_objects

if TYPE_CHECKING:
    from specfleet.cli.picture import Picture
    from specfleet.decide.watch_report import WatchReport

SHOWN_DECISIONS = 5


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    command = subparsers.add_parser(
        "explain",
        help="say why the present state holds and what would change it",
        description="Say in words and numbers why the present state of a SpeculativeDeployment holds, what its phase "
        "waits for, where it goes from here, and what a person can do; or recompute its past decisions.",
        epilog=examples(
            "explain llama -n ml",
            "explain llama -n ml --prometheus http://localhost:9090",
            "explain -f stored.yaml --at 2026-01-31T09:30:00Z",
        ),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("name", nargs="?", help="SpeculativeDeployment; may be left out when the files hold only one")
    add_source(command)
    command.add_argument("-o", "--output", choices=("text", "json", "markdown"), default="text", help="default: text")
    command.add_argument(
        "--prometheus", metavar="URL", help="Prometheus to ask for the watch's numbers, as reachable from here"
    )
    command.add_argument(
        "--replay",
        action="store_true",
        help="recompute past decisions from stored evidence and --prometheus; exit code 1 when one disagrees",
    )
    command.add_argument("--prometheus-token-file", metavar="FILE", help="bearer token for --prometheus")
    command.add_argument(
        "--at", type=_moment, metavar="TIME", help="moment to explain, for stored objects (RFC 3339); default: now"
    )
    command.add_argument(
        "--decisions", type=int, default=SHOWN_DECISIONS, metavar="N", help=f"last decisions; default {SHOWN_DECISIONS}"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Exit code: OK, REFUSED when a replayed decision disagrees, UNUSABLE_INPUT."""
    from specfleet.cli.explain_output import FORMATS
    from specfleet.cli.explaining import explain

    try:
        seen = _look(options)
        if options.replay:
            return _replay(options, seen)
        asked = _ask(options, seen) if options.prometheus else None
    except UnusableInputError as error:
        print(f"kubectl specfleet explain: {error}", file=sys.stderr)
        return UNUSABLE_INPUT
    sys.stdout.write(FORMATS[options.output](explain(seen, max(0, options.decisions), asked)))
    return OK


def _look(options: argparse.Namespace) -> "Picture":
    """What files or the cluster show of the deployment."""
    from specfleet.cli.picture import picture, read_cluster

    now = options.at or datetime.now(UTC)
    if options.filename:
        return picture(read_objects(options.filename, None), options.name, options.namespace, now)
    if options.name is None:
        raise UnusableInputError("name a SpeculativeDeployment (kubectl get sd lists them), or give files with -f")
    read = read_cluster(options.name, options.namespace, cluster_flags(options))
    return picture(read.objects, options.name, read.namespace, now, read.notes, read.whole_fleet)


def _ask(options: argparse.Namespace, seen: "Picture") -> "WatchReport | None":
    """What Prometheus says now; None while nothing serves that could be watched."""
    from specfleet.cli.asking import ask_watch, metrics_server
    from specfleet.cli.replay_pods import DataGoneError, watched_arms
    from specfleet.decide.watch_scope import watch_target

    obs = seen.obs
    if seen.status.stable is None:
        return None
    server = metrics_server(options.prometheus, obs.deployment, options.prometheus_token_file)
    if not seen.pods_seen:
        try:
            obs = watched_arms(server, obs)
        except DataGoneError as error:
            raise UnusableInputError(str(error)) from error
    return ask_watch(server, watch_target(obs, seen.status, obs.now), obs.now)


def _replay(options: argparse.Namespace, seen: "Picture") -> int:
    """Prints past decisions as they come out now."""
    from specfleet.cli.asking import metrics_server
    from specfleet.cli.replay import Outcome, replay
    from specfleet.cli.replay_output import FORMATS

    owner, server = seen.obs.deployment, None
    if options.prometheus:
        server = metrics_server(options.prometheus, owner, options.prometheus_token_file)
    found = replay(seen, server)
    sys.stdout.write(FORMATS[options.output](owner, found))
    return REFUSED if any(one.outcome is Outcome.DISAGREES for one in found) else OK


def _moment(text: str) -> datetime:
    """A time with its zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no RFC 3339 time, for example 2026-11-29T16:45:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
