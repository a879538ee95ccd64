"""Rules about engine.args: what contradicts the spec is refused, by name."""

import re
from collections.abc import Iterator

from specfleet.engine.findings import Severity
from specfleet.engine.flags import Flag, switched_on
from specfleet.engine.rules.case import ARGS, Case
from specfleet.engine.rules.rule import Hit, Shows, spec_rule
from specfleet.engine.serve_flags import LISTED, meant, unknown_flags

OWNED_FLAGS: dict[str, str] = {
    "--model": "spec.model.name",
    "--served-model-name": "spec.model.servedName",
    "--revision": "spec.model.revision",
    "--tokenizer": "spec.model.tokenizer",
    "--tokenizer-revision": "spec.model.tokenizerRevision",
    "--quantization": "spec.model.quantization",
    "-q": "spec.model.quantization",
    "--dtype": "spec.model.dtype",
    "--max-model-len": "spec.model.maxModelLen",
    "--port": "spec.engine.port",
    "--shutdown-timeout": "spec.engine.shutdownTimeoutSeconds",
    "--tensor-parallel-size": "spec.engine.tensorParallelSize",
    "-tp": "spec.engine.tensorParallelSize",
    "--pipeline-parallel-size": "spec.engine.pipelineParallelSize",
    "-pp": "spec.engine.pipelineParallelSize",
    "--data-parallel-size": "spec.engine.dataParallelSize",
    "-dp": "spec.engine.dataParallelSize",
    "--nnodes": "spec.template.multiNode.size",
    "-n": "spec.template.multiNode.size",
}
"""Flags with a typed field: written twice, the two would contradict each other sooner or later."""

OPERATED_FLAGS: dict[str, str] = {
    "--host": "specfleet binds the pod's address so that probes and Services reach the engine",
    "--uds": "specfleet reaches the engine by TCP",
    "--fingerprint-mode": "specfleet proves by the fingerprint which variant answers",
    "--fingerprint-value": "specfleet proves by the fingerprint which variant answers",
    "--custom-histogram-buckets": "specfleet sets the same buckets in both arms, with edges at the declared SLOs",
    "--node-rank": "specfleet numbers the nodes of an engine",
    "-r": "specfleet numbers the nodes of an engine",
    "--master-addr": "specfleet knows the leader's address",
    "--master-port": "specfleet knows the leader's address",
    "--headless": "specfleet decides which pod answers requests",
    "--data-parallel-rank": "specfleet places the ranks of an engine",
    "-dpn": "specfleet places the ranks of an engine",
    "--data-parallel-start-rank": "specfleet places the ranks of an engine",
    "-dpr": "specfleet places the ranks of an engine",
    "--data-parallel-address": "specfleet places the ranks of an engine",
    "-dpa": "specfleet places the ranks of an engine",
    "--data-parallel-size-local": "specfleet places the ranks of an engine",
    "-dpl": "specfleet places the ranks of an engine",
    "--data-parallel-external-lb": "specfleet places the ranks of an engine",
    "-dpe": "specfleet places the ranks of an engine",
    "--data-parallel-hybrid-lb": "specfleet places the ranks of an engine",
    "-dph": "specfleet places the ranks of an engine",
    "--api-key": "specfleet's own probes would get 401 (give VLLM_API_KEY in engine.env by Secret reference instead)",
    "--config": "settings in a file would be seen by no rule and by no fingerprint",
    "--ssl-keyfile": "specfleet probes and scrapes plain HTTP (terminate TLS at the gateway)",
    "--ssl-certfile": "specfleet probes and scrapes plain HTTP (terminate TLS at the gateway)",
    "--root-path": "specfleet probes the paths without a prefix",
}
"""Flags that specfleet itself needs to set, or needs to be absent."""

SPECULATIVE_FLAG = re.compile(r"^(-sc|--spec(ulative)?[-.].*|--spec|--speculative)$")
_SHORTEST_ABBREVIATION = 5


@spec_rule(
    Severity.REFUSE,
    Shows.SILENT,
    why="argparse lets the last of two values win, so one of the two would silently not hold",
    remedy="Remove it from engine.args and set the field",
    source="specfleet",
)
def argument_has_field(case: Case) -> Iterator[Hit]:
    """A flag whose value is a field of the spec, also abbreviated."""
    for flag in case.flags:
        owned = _resolve(flag.name, OWNED_FLAGS)
        if owned is not None:
            field = OWNED_FLAGS[owned]
            yield Hit(_at(flag), f"{flag.name} contradicts {field}", f"Remove {flag.name} and set {field}")


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why="specfleet needs the flag for itself, or needs it absent, to probe, watch and compare",
    remedy="Remove it from engine.args",
    source="specfleet",
)
def argument_is_operated(case: Case) -> Iterator[Hit]:
    """A flag that specfleet sets, or that locks it out."""
    for flag in case.flags:
        owned = _resolve(flag.name, OPERATED_FLAGS)
        if owned is not None:
            yield Hit(_at(flag), f"{flag.name} cannot be set: {OPERATED_FLAGS[owned]}", f"Remove {flag.name}")


@spec_rule(
    Severity.REFUSE,
    Shows.SILENT,
    why="the plain arm would speculate too, and the comparison would compare nothing",
    remedy="Remove it and write spec.speculation",
    source="vllm 0.32 source (--speculative-config, --spec-method, --spec-model, --spec-tokens)",
)
def argument_speculates(case: Case) -> Iterator[Hit]:
    """Speculation in engine.args."""
    for flag in case.flags:
        if SPECULATIVE_FLAG.match(flag.name):
            yield Hit(_at(flag), f"{flag.name} sets speculation outside spec.speculation")


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why="it removes every vllm: series, so that the arm could not be watched or compared",
    remedy="Remove it",
    source="vllm 0.32 run: no vllm: series with --disable-log-stats",
)
def log_stats_disabled(case: Case) -> Iterator[Hit]:
    """--disable-log-stats, also abbreviated or with underscores."""
    for flag in case.flags:
        if flag.name == "--disable-log-stats" or _abbreviates(flag.name, "--disable-log-stats"):
            yield Hit(_at(flag), f"{flag.name} removes every vllm metric")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="no shell splits the string: vLLM sees one unknown argument and exits with status 2",
    remedy="Write the flag and its value as two list items, or as --flag=value",
    source="vllm 0.32 source (argparse)",
)
def argument_not_split(case: Case) -> Iterator[Hit]:
    """Flag and value in one list item."""
    for index, token in enumerate(case.spec.engine.args):
        if token.startswith("--") and re.search(r"\s", token.split("=", 1)[0]):
            yield Hit(f"{ARGS}[{index}]", f"{token!r} is one argument, not a flag and a value")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="vllm serve takes one model, which spec.model.name already is",
    remedy="Remove it",
    source="vllm 0.32 source (argparse)",
)
def argument_without_flag(case: Case) -> Iterator[Hit]:
    """A value before any flag."""
    for flag in case.flags:
        if not flag.name:
            yield Hit(_at(flag), f"{flag.text!r} stands before any flag")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="vLLM takes no flag that it does not know: unrecognized arguments, exit status 2",
    remedy="Correct its name; for an engine of your own that has it, say so in engine.version (0.32.0+own)",
    source="vllm 0.32 run (the engine's own argument parser)",
    since=LISTED,
    last=LISTED,
)
def argument_unknown(case: Case) -> Iterator[Hit]:
    """A flag that the release does not have, known where its list was taken from the engine."""
    if case.own_build:
        return
    for flag in unknown_flags(case.flags):
        if SPECULATIVE_FLAG.match(flag.name) or any(map(str.isspace, flag.name)):
            continue
        better = meant(flag.name)
        hint = f"Did you mean {better}?" if better is not None else ""
        yield Hit(_at(flag), f"vLLM {case.version} has no flag {flag.name}", hint)


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="nothing interprets shell syntax: the text would reach vLLM as it is",
    remedy="Write plain arguments; $(NAME) of a variable in engine.env is expanded by Kubernetes",
    source="specfleet",
)
def argument_is_shell(case: Case) -> Iterator[Hit]:
    """Shell operators or substitutions."""
    for index, token in enumerate(case.spec.engine.args):
        if token in ("&&", "||", "|", ";", ">", ">>", "<", "2>&1") or re.search(r"`|\$\{|\$\([^)]*\s", token):
            yield Hit(f"{ARGS}[{index}]", f"{token!r} is shell syntax")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="engine.args go to both arms, and an engine without speculation exits when it reads the flag",
    remedy="Remove it: specfleet reads the counters of /metrics",
    source="vllm 0.32 source: requires speculative decoding to be enabled",
)
def argument_needs_speculation(case: Case) -> Iterator[Hit]:
    """--per-request-spec-decode-metrics, which the plain arm cannot start with."""
    for flag in case.flags:
        if flag.name == "--per-request-spec-decode-metrics" and flag.text != "none":
            yield Hit(_at(flag), f"{flag.name} keeps the plain arm from starting")


@spec_rule(
    Severity.WARN,
    Shows.SILENT,
    why="adapters change what is served, and neither the fingerprint nor the benchmark sees them come and go",
    remedy="Load adapters at start (--lora-modules)",
    source="vllm 0.32 source",
)
def adapters_at_run_time(case: Case) -> Iterator[Hit]:
    """VLLM_ALLOW_RUNTIME_LORA_UPDATING."""
    if case.lora and case.env.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING") not in (None, "0", "false", "False", ""):
        yield Hit("spec.engine.env", "adapters can be changed in running engines")


@spec_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="per-request logs of prompts and outputs cost time in both arms and may hold personal data",
    remedy="Remove it outside of debugging",
    source="vllm 0.32 source",
)
def request_logging_on(case: Case) -> Iterator[Hit]:
    """--enable-log-requests or --enable-log-outputs."""
    for name in ("--enable-log-requests", "--enable-log-outputs"):
        if switched_on(case.flags, name):
            yield Hit(ARGS, f"{name} logs user data")


def _resolve(name: str, owned: dict[str, str]) -> str | None:
    if name in owned:
        return name
    if name[:1] == "-" and name[1:2] != "-" and name[:2] in owned and name not in _SHORT_FLAGS_OF_THEIR_OWN:
        return name[:2]  # argparse takes -n2 for -n 2
    return next((full for full in owned if _abbreviates(name, full)), None)


def _abbreviates(name: str, full: str) -> bool:
    """Whether argparse would take `name` for `full`; names that are flags of vLLM's own do not abbreviate."""
    return (
        full.startswith("--")
        and len(name) >= _SHORTEST_ABBREVIATION
        and full.startswith(name)
        and name != full
        and name not in _FLAGS_OF_THEIR_OWN
    )


_FLAGS_OF_THEIR_OWN = frozenset({"--tokenizer", "--model", "--data-parallel", "--max"})
_SHORT_FLAGS_OF_THEIR_OWN = frozenset({"-dp", "-tp", "-pp"})


def _at(flag: Flag) -> str:
    return f"{ARGS}[{flag.index}]" if flag.index >= 0 else ARGS
