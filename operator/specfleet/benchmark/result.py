"""What the driver's termination message says: a typed report, or a typed reason why there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pydantic import ValidationError

from specfleet.api.evidence import BenchmarkEvidenceSpec, RequestProbe, RunSummary
from specfleet.api.status import ArmRole
from specfleet.benchmark.driver.message import MESSAGE_VERSION
from specfleet.benchmark.encoding import ARMS, decode_run, unpack

MESSAGE_LIMIT_BYTES = 4096
_HASH_CHARACTERS = 4
_NO_TEXT = "-" * _HASH_CHARACTERS


class MessageFault(StrEnum):
    """Why a termination message is not a report."""

    EMPTY = "Empty"
    """The container ended before it could write (killed, evicted, node lost)."""
    TRUNCATED = "Truncated"
    NOT_JSON = "NotJson"
    """Something else wrote it, for example the kubelet's fall-back to the log's end."""
    OTHER_VERSION = "OtherVersion"


@dataclass(frozen=True, slots=True)
class MessageError:
    """No report; `message` is for a person."""

    fault: MessageFault
    message: str


@dataclass(frozen=True, slots=True)
class DriverReport:
    """What one Job measured. `texts` are hashes of greedy completions per prompt, by arm."""

    runs: tuple[RunSummary, ...]
    capacity_requests_per_second: float | None = None
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    request_probes: tuple[RequestProbe, ...] = ()
    error: str | None = None


def parse_report(text: str | None) -> DriverReport | MessageError:
    """A driver's termination message. Never raises: a message that cannot be read is a MessageError."""
    if not text or not text.strip():
        return MessageError(MessageFault.EMPTY, "the driver left no termination message (killed before it ended?)")
    try:
        value = unpack(text.strip())
    except ValueError as error:
        started = text.lstrip().startswith(("{", "z1:"))
        fault = MessageFault.TRUNCATED if started else MessageFault.NOT_JSON
        return MessageError(fault, f"the driver's termination message is {fault.value}: {str(error)[:200]}")
    if not isinstance(value, dict) or value.get("v") != MESSAGE_VERSION:
        found = value.get("v") if isinstance(value, dict) else type(value).__name__
        return MessageError(MessageFault.OTHER_VERSION, f"version {MESSAGE_VERSION} was expected, found {found}")
    try:
        pods = dict(zip(ARMS, value.get("pods") or (None, None), strict=True))
        tiers, slices = value["tiers"], value["slices"]
        runs = tuple(decode_run(row, tiers, slices, pods) for row in value["runs"])
        texts = {name: _hashes(joined) for name, joined in (value.get("texts") or {}).items()}
        probes = tuple(
            RequestProbe(name=name, baseline_status=_status(pair[0]), speculative_status=_status(pair[1]))
            for name, pair in (value.get("requests") or {}).items()
        )
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ValidationError) as error:
        return MessageError(MessageFault.OTHER_VERSION, f"the message does not fit the table: {str(error)[:200]}")
    report = DriverReport(runs, value.get("capacity"), texts, probes, value.get("error"))
    return with_agreement(report)


def parse_termination_message(text: str | None) -> tuple[RunSummary, ...] | MessageError:
    """Only the runs of a termination message (parse_report gives probes, capacity and the driver's error too)."""
    report = parse_report(text)
    return report if isinstance(report, MessageError) else report.runs


def agreement(texts: Mapping[str, Sequence[str]]) -> tuple[float, float, int] | None:
    """(share of equal texts between the arms, share between the plain arm and itself, prompts); None: not probed."""
    plain, again, drafted = (texts.get(name) for name in ("baseline", "baseline-again", "speculative"))
    if not plain or not again or not drafted or not len(plain) == len(again) == len(drafted):
        return None
    known = [i for i in range(len(plain)) if _NO_TEXT not in (plain[i], again[i], drafted[i])]
    if not known:
        return None
    between = sum(plain[i] == drafted[i] for i in known) / len(known)
    within = sum(plain[i] == again[i] for i in known) / len(known)
    return between, within, len(known)


def with_agreement(report: DriverReport) -> DriverReport:
    """The report with agreement_ratio (relative to the plain arm's own) on its speculative runs, when it is known."""
    found = agreement(report.texts)
    if found is None or found[1] == 0:
        return report
    ratio = min(1.0, found[0] / found[1])
    runs = tuple(
        run.model_copy(update={"agreement_ratio": ratio}) if run.arm is ArmRole.SPECULATIVE else run
        for run in report.runs
    )
    return replace(report, runs=runs)


def capacity_of(evidence: Sequence[BenchmarkEvidenceSpec]) -> dict[str, float]:
    """Measured closed-loop requests/s of the plain arm per slice, from evidence of purpose Capacity; the last wins."""
    return {
        run.slice: run.completed_requests_per_second
        for one in evidence
        if one.purpose == "Capacity" and one.error is None
        for run in one.runs
        if run.valid and run.arm is ArmRole.BASELINE and run.completed_requests_per_second > 0
    }


def _hashes(joined: str) -> tuple[str, ...]:
    return tuple(joined[i : i + _HASH_CHARACTERS] for i in range(0, len(joined), _HASH_CHARACTERS))


def _status(code: int) -> int | None:
    return code if code > 0 else None
