"""What the watch tells the state machine: typed answers, windows and suspicions. Plain data, made by decide/watch.py.

A number that was not measured is None, never 0 and never NaN; why it is missing is said by the `Answer`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from specfleet.api.status import ArmRole, Calibration, Verdict


class Answer(StrEnum):
    """What a metrics query came back with. Only OK carries numbers that a decision may use."""

    OK = "OK"
    NO_TRAFFIC = "NoTraffic"
    NOT_SPECULATING = "NotSpeculating"
    TARGET_DOWN = "TargetDown"
    SCHEMA_MISSING = "SchemaMissing"
    STALE = "Stale"
    INSUFFICIENT = "Insufficient"
    UNAVAILABLE = "Unavailable"
    """The metrics server did not answer, or answered with an error, warnings or a partial result."""


USABLE_ANSWERS = (Answer.OK, Answer.NO_TRAFFIC, Answer.NOT_SPECULATING, Answer.INSUFFICIENT)
"""The metrics path works; whether there is enough to judge is another question."""


class Severity(StrEnum):
    """How a finding is treated (docs/concepts.md): hard at once, SLO after confirmation, economic by the ladder."""

    HARD = "Hard"
    SLO = "SLO"
    ECONOMIC = "Economic"


class Signal(StrEnum):
    """What was found. The name is also the reason in conditions, Events and alerts."""

    ACCEPTANCE_DRIFT = "AcceptanceDrift"
    ACCEPTANCE_RAMP = "AcceptanceRamp"
    TPOT_REGRESSION = "TimePerOutputTokenRegression"
    TTFT_REGRESSION = "TimeToFirstTokenRegression"
    STALLS = "InterTokenStalls"
    CLIENT_ERRORS = "IncompatibleRequests"
    SERVER_ERRORS = "ServerErrors"
    NO_PROGRESS = "NoProgress"
    LOST_GAIN = "LostGain"


class Stage(StrEnum):
    """Suspect against the arm's own history, Confirmed by fresh windows."""

    SUSPECT = "Suspect"
    CONFIRMED = "Confirmed"


class Attribution(StrEnum):
    """Whose fault it is, judged against the plain arm at matched load."""

    PENDING = "Pending"
    SPECULATION = "Speculation"
    SHARED = "Shared"
    HISTORICAL = "Historical"
    """No concurrent plain arm: only the arm's own history speaks."""
    POD = "Pod"
    """One pod only."""


@dataclass(frozen=True, slots=True)
class ArmWindow:
    """Counters of one arm over one span, from per-pod deltas. Seconds, tokens, shares in 0..1."""

    answer: Answer
    start: datetime | None = None
    end: datetime | None = None
    pods: int = 0
    requests: float = 0.0
    generated_tokens: float = 0.0
    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0
    acceptance_rate: float | None = None
    position_zero_rate: float | None = None
    accepted_length: float | None = None
    tokens_per_step: float | None = None
    tpot_seconds: float | None = None
    ttft_seconds: float | None = None
    server_error_share: float | None = None
    client_error_share: float | None = None
    requests_per_second_per_pod: float | None = None
    running_per_pod: float | None = None
    kv_cache_ratio: float | None = None
    preemptions_per_request: float | None = None


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One finding of the watch."""

    signal: Signal
    severity: Severity
    stage: Stage
    attribution: Attribution
    since: datetime
    message: str
    """In words and numbers, for a person: observed, expected, statistic and threshold."""
    statistic: float
    threshold: float
    observed: float | None = None
    expected: float | None = None
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The speculative arm against the plain one, concurrent and at matched load, since `since`. Valid under peeking."""

    verdict: Verdict
    reason: str
    message: str
    since: datetime
    tpot_ratio: float | None = None
    """speculative / plain, token-weighted; below 1 is better."""
    tpot_ratio_lower: float | None = None
    tpot_ratio_upper: float | None = None
    load_ratio: float | None = None
    """requests per second and pod, speculative / plain."""


@dataclass(frozen=True, slots=True)
class WatchReport:
    """Everything telemetry says about one deployment at one moment."""

    answer: Answer
    """Of the deployment as a whole: OK when the metrics that a decision needs are there."""
    message: str = ""
    fingerprint: str = ""
    """Of the arm that is judged (the speculative one, or a changed plain one under trial); empty: not said."""
    last: Mapping[ArmRole, ArmWindow] = field(default_factory=dict)
    """The last closed window per arm."""
    step: Mapping[ArmRole, ArmWindow] = field(default_factory=dict)
    """Since the start of the present canary step or attribution (`Target.since`)."""
    pods: Mapping[str, ArmWindow] = field(default_factory=dict)
    """Per pod name, since `Target.since`: tells whether a restarted pod got better than its siblings."""
    calibration: Calibration | None = None
    """What would be normal, from the first full windows after promotion; offered only while the status has none."""
    comparison: Comparison | None = None
    suspicions: tuple[Suspicion, ...] = ()
    """None of windows long ago: they are left out until something is measured again, and `message` says so."""


SCRAPED_TWICE = "scraped more than once"
"""How the part of an OK report's message begins that a person should read all the same."""

UNKNOWN_REPORT = WatchReport(answer=Answer.UNAVAILABLE, message="no metrics have been read yet")


def gist(report: WatchReport) -> object:
    """What would make decide() think again: not the numbers, which change every window.

    With little traffic a window often has nothing to say; while nothing is suspected, that is no news either.
    """
    comparison = report.comparison
    slower = comparison is not None and (comparison.tpot_ratio_lower or 0.0) > 1.0
    findings = tuple((one.signal, one.stage, one.attribution, one.pod) for one in report.suspicions)
    calm = not findings and not slower and report.answer in USABLE_ANSWERS
    return None if calm else report.answer, findings, slower, report.calibration is not None
