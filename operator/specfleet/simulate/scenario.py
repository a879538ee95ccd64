"""A scenario as data: what the deployment is, what goes wrong when, and what must and must not be done about it."""

import itertools
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from specfleet.api.status import ArmRole, Phase
from specfleet.decide.watch_report import Signal, Stage

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


class ScenarioError(ValueError):
    """The file is not a scenario. The message names the file and the field."""


def duration_seconds(value: object) -> float:
    """Seconds of `90`, `90s`, `10m`, `1h30m`, `14d`."""
    if isinstance(value, int | float) or str(value).isdecimal():
        return float(str(value))
    found = _DURATION.fullmatch(str(value))
    if not found or not str(value):
        raise ValueError(f"{value!r} is not a duration like 90s, 10m, 1h30m or 14d")
    return sum(float(part or 0) * unit for part, unit in zip(found.groups(), (86400, 3600, 60, 1), strict=True))


Duration = Annotated[float, BeforeValidator(duration_seconds)]


class Strict(BaseModel):
    """Unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FaultKind(StrEnum):
    """What can go wrong."""

    ACCEPTANCE = "acceptance"
    """`factor` on accepted tokens; `ramp`: reached linearly; `healed_by_restart`: a new pod is free of it."""
    STEP_TIME = "stepTime"
    """`factor` on the time of an engine step."""
    STALLS = "stalls"
    """`share` of gaps between outputs that are longer than guardrails.stallSloSeconds."""
    TTFT = "ttft"
    """`factor` on time to first token."""
    SERVER_ERRORS = "serverErrors"
    """`share` of requests that end with 5xx."""
    CLIENT_ERRORS = "clientErrors"
    """`share` of requests that get 4xx."""
    HANG = "hang"
    """Requests stay in the engine, nothing comes out, /health is green."""
    CRASH = "crash"
    """The engine ends soon after each start."""
    OUT_OF_MEMORY = "outOfMemory"
    """The engine is killed once for memory."""
    TRAFFIC = "traffic"
    """`factor` on the rate of requests (0: none)."""
    MIX = "mix"
    """Traffic of one data set only (`dataset`)."""
    METRICS = "metrics"
    """The metric path fails in the way of `answer`."""
    OPERATOR_RESTART = "operatorRestart"
    """The operator's process is replaced in good order: the next one goes on from the checkpoints. Here the hours of
    the first week are lost with it (there is no Prometheus to read them from)."""
    SPEC = "spec"
    """The user applies the spec with `patch` merged in."""


class Fault(Strict):
    """One entry of the timeline."""

    at: Duration
    """Since `anchor`."""
    kind: FaultKind
    lasts: Duration = float("inf")
    ramp: Duration = 0.0
    factor: float = 1.0
    share: float = 0.0
    arm: ArmRole | None = None
    """None: both arms."""
    pods: str = Field("all", pattern="^(all|one)$")
    healed_by_restart: bool = Field(False, alias="healedByRestart")
    dataset: str | None = None
    answer: str = Field("Unavailable", pattern="^(Unavailable|Stale|TargetDown|SchemaMissing|Insufficient)$")
    patch: dict[str, Any] = Field(default_factory=dict)


class Outcome(Strict):
    """Something that may happen: a decision, a phase, or a finding of the watch. All given fields must match."""

    action: str | None = None
    reason: str | None = None
    phase: Phase | None = None
    signal: Signal | None = None
    stage: Stage | None = None
    by: Duration = float("inf")
    """Latest time since the anchor (for `must`)."""
    after: Duration = 0.0
    """Earliest time since the anchor that counts."""


class Traffic(Strict):
    """What users do."""

    requests_per_second: float = Field(2.0, alias="requestsPerSecond")
    method: str = Field("eagle", pattern="^(eagle|ngram)$")
    diurnal: float = 0.0
    mix_concentration: float = Field(60.0, alias="mixConcentration")
    runaways: bool = True


class Scenario(Strict):
    """One file (or one entry of a list in a file)."""

    name: str
    why: str = ""
    """What it stands for: an incident, a rule, a class of faults."""
    seed: int = 1
    spec: dict[str, Any] = Field(default_factory=dict)
    """Merged into the default spec of the simulation (`specfleet.simulate.cluster.DEFAULT_SPEC`)."""
    traffic: Traffic = Traffic()
    draft_milliseconds: float = Field(2.135, alias="draftMilliseconds")
    """Cost of a draft at batch 1; raise it for a proposer that does not pay."""
    anchor: str = Field("promoted", pattern="^(start|canary|promoted)$")
    """What `at`, `by` and `after` count from; a scenario whose anchor is not reached fails."""
    duration: Duration = 6 * 3600.0
    """How long to go on after the anchor."""
    timeline: list[Fault] = Field(default_factory=list)
    must: list[Outcome] = Field(default_factory=list)
    must_not: list[Outcome] = Field(default_factory=list, alias="mustNot")
    finally_serves: ArmRole | None = Field(None, alias="finallyServes")


def load(path: Path) -> list[Scenario]:
    """Scenarios of a YAML file: one mapping, or a list of them. Raises ScenarioError.

    An entry with `matrix: {name: [values]}` stands for every combination; `${name}` is replaced wherever it occurs.
    """
    try:
        body = yaml.safe_load(path.read_text())
        listed = body if isinstance(body, list) else [body]
        return [Scenario.model_validate(one) for entry in listed for one in _expanded(entry)]
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path}: not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ScenarioError(f"{path}: {where}: {first['msg']}") from error


def _expanded(entry: Any) -> list[Any]:
    if not isinstance(entry, dict) or "matrix" not in entry:
        return [entry]
    matrix = entry["matrix"]
    rest = {name: value for name, value in entry.items() if name != "matrix"}
    combinations = itertools.product(*matrix.values())
    return [_filled(rest, dict(zip(matrix, values, strict=True))) for values in combinations]


def _filled(value: Any, names: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, names) for one in value]
    if not isinstance(value, str):
        return value
    whole = re.fullmatch(r"\$\{(\w+)\}", value)
    if whole and whole[1] in names:
        return names[whole[1]]
    return re.sub(r"\$\{(\w+)\}", lambda found: str(names.get(found[1], found[0])), value)
