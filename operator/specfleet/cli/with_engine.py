"""`lint --with-engine`: the installed vLLM parses the rendered command and builds its own configuration from it."""

import contextlib
import io
import os
import sys
from importlib.util import find_spec

from specfleet.api.deployment import DeploymentSpec
from specfleet.cli.linting import AskEngine
from specfleet.engine.arguments import EngineArm, build_arm
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.preflight import Locate
from specfleet.engine.rules.case import proposer_path
from specfleet.engine.speculative import config_text
from specfleet.engine.versions import EngineVersion, version_of

RULE = "EngineRefuses"


class EngineMissingError(Exception):
    """vLLM is not installed here."""


def engine_asker(locate: Locate | None) -> AskEngine:
    """A function that asks vLLM about a spec. Raises EngineMissingError where the package is missing."""
    if find_spec("vllm") is None:
        raise EngineMissingError(
            "--with-engine needs the package vllm in the Python that runs this command: install the version of your "
            "image, for example `pip install vllm==0.32.0`"
        )
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    with contextlib.redirect_stdout(sys.stderr):  # the engine logs to stdout, which is lint's own
        import vllm

    installed = EngineVersion.parse(str(vllm.__version__))

    def ask(spec: DeploymentSpec) -> tuple[Finding, ...]:
        asked = version_of(spec.engine)
        found = []
        if asked is not None and installed is not None and asked.release != installed.release:
            message = f"the installed vLLM is {installed}, the spec asks for {asked}"
            found.append(_finding(Severity.WARN, "spec.engine", message, "Install the version of the spec"))
        for proposer in (None, *(spec.speculation.proposers() if spec.speculation else ())):
            path = "spec" if proposer is None else proposer_path(spec, proposer)
            said = engine_says(_local(build_arm(spec, proposer), spec, locate))
            if said is not None:
                found.append(_finding(Severity.REFUSE, path, said, "Correct what the engine names"))
        return tuple(found)

    return ask


def engine_says(args: list[str]) -> str | None:
    """Why this vLLM refuses `vllm serve ARGS`, in its own words; None when it builds its configuration.

    Reads the models' config.json (downloads it for repositories), loads no weights and starts no engine.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stdout(sys.stderr), contextlib.redirect_stderr(errors):
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.entrypoints.cli.serve import ServeSubcommand
            from vllm.utils.argparse_utils import FlexibleArgumentParser

            parser, command = FlexibleArgumentParser(prog="vllm"), ServeSubcommand()
            command.subparser_init(parser.add_subparsers(dest="subparser"))
            parsed = parser.parse_args(["serve", *args])
            command.validate(parsed)
            parsed.model = parsed.model_tag
            AsyncEngineArgs.from_cli_args(parsed).create_engine_config()
    except SystemExit:
        return errors.getvalue().strip().splitlines()[-1] if errors.getvalue().strip() else "the arguments are refused"
    except Exception as error:  # whatever the engine raises is its answer
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _local(arm: EngineArm, spec: DeploymentSpec, locate: Locate | None) -> list[str]:
    """The arguments with model paths of the pod replaced by the folders that are here."""
    if locate is None:
        return list(arm.args)
    args = list(arm.args)
    args[0] = locate(spec.model.name, spec.model.revision) or args[0]
    config = arm.speculative_config
    if config is not None and "model" in config:
        here = locate(config["model"], config.get("revision")) or config["model"]
        args[args.index("--speculative-config") + 1] = config_text({**config, "model": here})
    return args


def _finding(severity: Severity, path: str, message: str, remedy: str) -> Finding:
    return Finding(RULE, severity, path, RULE, message, remedy, "the installed vllm package")
