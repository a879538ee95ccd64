"""`kubectl specfleet render FILE`: the exact pods, command lines and speculative configurations of a spec."""

import argparse
import sys
from pathlib import Path
from typing import Any

from specfleet.cli.exit_codes import OK, REFUSED, UNUSABLE_INPUT
from specfleet.cli.help_text import HelpFormatter, examples


def register(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "render",
        help="show the pods and engine commands that a spec asks for",
        description="Prints, for every arm of a SpeculativeDeployment, the pod template that the operator would create "
        "(default), or only the engine's command line. Nothing is sent anywhere.",
        epilog=examples(
            "render app.yaml",
            "render app.yaml --arm speculative --output command",
            "render app.yaml --output fingerprint",
        ),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="manifest, or - for stdin")
    parser.add_argument(
        "--arm", metavar="LABEL", help="only this arm: baseline, speculative, or a proposer as in status (eagle3 k=3)"
    )
    parser.add_argument(
        "--output", choices=("pod", "command", "fingerprint"), default="pod", help="what to print; default: pod"
    )
    parser.add_argument(
        "--config-maps",
        type=Path,
        metavar="DIR",
        help="folder with one folder per referenced ConfigMap, a file per key",
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Renders and prints YAML documents or commands."""
    from specfleet.cli.linting import lint
    from specfleet.cli.manifests import read_manifests
    from specfleet.cli.rendering import Arm, arms_of, command_text, fingerprint_text, pod_text, read_config_maps
    from specfleet.engine.admission import read_spec

    reading = read_manifests([chosen.file])
    if reading.unusable:
        return _say("; ".join(reading.unusable), UNUSABLE_INPUT)
    if not reading.manifests:
        return _say(reading.nothing([chosen.file]), UNUSABLE_INPUT)
    config_maps = read_config_maps(chosen.config_maps) if chosen.config_maps else {}
    texts = []
    for manifest in reading.manifests:
        spec, findings = read_spec(manifest.raw.get("spec"))
        if spec is None or findings:
            return _say("\n".join(one.sentence() for one in findings), REFUSED)
        if lint(manifest).refused:
            # Still shown, because the command line is what a refusal is about; but it is not what would run.
            _say(f"note: kubectl specfleet lint refuses {manifest.name}, so none of this would run as it is", OK)
        chosen_arms: list[Arm] = [arm for arm in arms_of(spec, config_maps) if arm.answers_to(chosen.arm)]
        if not chosen_arms:
            known = ", ".join(arm.engine.proposer_label for arm in arms_of(spec, config_maps))
            return _say(f"no arm {chosen.arm!r} in {manifest.name}: baseline, speculative, {known}", UNUSABLE_INPUT)
        show = {"pod": pod_text, "command": command_text, "fingerprint": fingerprint_text}[chosen.output]
        texts += [show(manifest, spec, arm) for arm in chosen_arms]
    print(("---\n" if chosen.output != "command" else "").join(texts), end="")
    return OK


def _say(message: str, code: int) -> int:
    print(f"kubectl specfleet render: {message}", file=sys.stderr)
    return code
