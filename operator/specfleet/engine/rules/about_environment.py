"""Rules about engine.env."""

from collections.abc import Iterator

from specfleet.engine.environment import TOKEN_VARIABLE
from specfleet.engine.findings import Severity
from specfleet.engine.rules.case import ENV, Case
from specfleet.engine.rules.rule import Hit, Shows, spec_rule

_OFF = (None, "0", "false", "False", "")
_RESERVED_PREFIX = "SPECFLEET_"


@spec_rule(
    Severity.REFUSE,
    Shows.ADMISSION,
    why="the API server refuses the pod",
    remedy="Write name and value, or name and valueFrom",
    source="kubernetes core/v1 EnvVar",
)
def variable_malformed(case: Case) -> Iterator[Hit]:
    """An entry that is no EnvVar."""
    for index, one in enumerate(case.spec.engine.env):
        if not isinstance(one, dict) or not one.get("name"):
            yield Hit(f"{ENV}[{index}]", "a variable without a name")
        elif "value" in one and not isinstance(one["value"], str):
            yield Hit(f"{ENV}[{index}].value", f"the value of {one['name']} is not a string: quote it")


@spec_rule(
    Severity.WARN,
    Shows.SILENT,
    why="the last one wins",
    remedy="Remove the earlier one",
    source="kubernetes core/v1 EnvVar",
)
def variable_repeated(case: Case) -> Iterator[Hit]:
    """The same name twice."""
    seen: set[str] = set()
    for index, one in enumerate(case.spec.engine.env):
        name = str(one.get("name")) if isinstance(one, dict) else ""
        if name in seen:
            yield Hit(f"{ENV}[{index}].name", f"{name} is set twice")
        seen.add(name)


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why="specfleet's probe and drain read these variables",
    remedy="Rename it",
    source="specfleet",
)
def variable_reserved(case: Case) -> Iterator[Hit]:
    """A name that begins with SPECFLEET_."""
    for name in case.env:
        if name.startswith(_RESERVED_PREFIX):
            yield Hit(ENV, f"{name} is reserved")


@spec_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="whoever can read the object can read the token",
    remedy="Put it into a Secret and name that in template.huggingFaceTokenSecret",
    source="specfleet",
)
def token_in_plain_text(case: Case) -> Iterator[Hit]:
    """A Hugging Face token as a literal."""
    for name in (TOKEN_VARIABLE, "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY"):
        if case.env.get(name):
            yield Hit(ENV, f"{name} is written in plain text")


@spec_rule(
    Severity.WARN,
    Shows.OPERATION,
    why="it opens endpoints that put engines to sleep, run code in workers and reset caches, to every client",
    remedy="Remove VLLM_SERVER_DEV_MODE",
    source="vllm 0.32 run",
)
def development_mode(case: Case) -> Iterator[Hit]:
    """VLLM_SERVER_DEV_MODE."""
    if case.env.get("VLLM_SERVER_DEV_MODE") not in _OFF:
        yield Hit(ENV, "VLLM_SERVER_DEV_MODE is on")


@spec_rule(
    Severity.REFUSE,
    Shows.OPERATION,
    why="a dead engine would keep its pod running instead of being restarted",
    remedy="Remove VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
    source="vllm 0.32 source",
)
def dead_engine_kept_alive(case: Case) -> Iterator[Hit]:
    """VLLM_KEEP_ALIVE_ON_ENGINE_DEATH."""
    if case.env.get("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH") not in _OFF:
        yield Hit(ENV, "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH is on")


@spec_rule(
    Severity.REFUSE,
    Shows.START,
    why="the V0 engine is gone; releases that still had it speculated and measured differently",
    remedy="Remove VLLM_USE_V1",
    source="vllm 0.8 to 0.11 source",
)
def removed_engine_asked(case: Case) -> Iterator[Hit]:
    """VLLM_USE_V1=0."""
    if case.env.get("VLLM_USE_V1") in ("0", "false", "False"):
        yield Hit(ENV, "VLLM_USE_V1 asks for the removed V0 engine")
