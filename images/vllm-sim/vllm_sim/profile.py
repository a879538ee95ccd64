"""The simulated hardware and model: one JSON document in VLLM_SIM_PROFILE (inline, or a path to a file).

Every field has a default, unknown fields are refused with their path. The defaults are a Llama-3.1-8B on an H100
(the published step-time fit t_ms = 5.886 + 0.02101 x batched tokens + 3.93e-5 x KV tokens + 1.207 overhead, EAGLE draft
2.135 ms for three positions) made four times slower by `time_scale`, so that a busy small machine can serve it.
"""

import fnmatch
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

PROFILE_VARIABLE = "VLLM_SIM_PROFILE"
T = TypeVar("T")


class ProfileError(Exception):
    """The profile cannot be used; the text names the field."""


@dataclass(frozen=True)
class LinearCost:
    """Milliseconds = constant + per_batched_token x tokens in the batch + per_kv_token x KV tokens of the batch."""

    constant: float = 0.0
    per_batched_token: float = 0.0
    per_kv_token: float = 0.0
    per_position: float = 0.0
    """Per draft position and step (drafts only): a draft runs its positions one after the other."""


@dataclass(frozen=True)
class ProposerProfile:
    """How one speculative method behaves."""

    acceptance: tuple[float, ...] = (0.673, 0.653, 0.640)
    """Probability that position i is accepted when all positions before it were; the last value repeats."""
    between_request_sd: float = 0.08
    """Standard deviation between requests of that probability: what makes acceptance over-dispersed."""
    temperature_loss: float = 0.1
    """Relative loss of that probability at temperature 1 (linear between 0 and 1)."""
    match_share: float = 1.0
    """Share of decode steps that have a draft at all (n-gram and suffix: a match was found)."""
    draft_milliseconds: LinearCost = LinearCost(per_position=0.712, per_batched_token=8.4e-4, per_kv_token=2.4e-6)
    kv_capacity_factor: float = 1.0
    """Share of the KV capacity that the draft model leaves."""


DEFAULT_PROPOSERS: dict[str, ProposerProfile] = {
    "eagle3": ProposerProfile(kv_capacity_factor=0.96),
    "eagle": ProposerProfile(acceptance=(0.60, 0.55, 0.52), kv_capacity_factor=0.96),
    "mtp": ProposerProfile(acceptance=(0.80, 0.68, 0.60), kv_capacity_factor=0.95),
    "draft_model": ProposerProfile(
        acceptance=(0.76, 0.74, 0.72),
        draft_milliseconds=LinearCost(per_position=1.6, per_batched_token=2.0e-3, per_kv_token=6.0e-6),
        kv_capacity_factor=0.85,
    ),
    "medusa": ProposerProfile(
        acceptance=(0.55, 0.40, 0.30), draft_milliseconds=LinearCost(constant=0.4, per_batched_token=8.4e-4)
    ),
    "dflash": ProposerProfile(
        acceptance=(0.70, 0.66, 0.63), draft_milliseconds=LinearCost(constant=1.5, per_batched_token=8.4e-4)
    ),
    "dspark": ProposerProfile(
        acceptance=(0.74, 0.70, 0.66), draft_milliseconds=LinearCost(constant=1.6, per_batched_token=8.4e-4)
    ),
    "ngram": ProposerProfile(
        acceptance=(0.274, 0.901, 0.912),
        between_request_sd=0.12,
        match_share=0.45,
        draft_milliseconds=LinearCost(constant=0.04),
    ),
    "suffix": ProposerProfile(
        acceptance=(0.45, 0.80, 0.85),
        between_request_sd=0.12,
        match_share=0.60,
        draft_milliseconds=LinearCost(constant=0.06),
    ),
}
DEFAULT_PROPOSERS["ngram_gpu"] = DEFAULT_PROPOSERS["ngram"]
DEFAULT_PROPOSERS["custom_class"] = DEFAULT_PROPOSERS["eagle"]
DEFAULT_PROPOSERS["extract_hidden_states"] = replace(DEFAULT_PROPOSERS["eagle"], acceptance=(0.0,))


@dataclass(frozen=True)
class OutputLength:
    """Where a model ends by itself: log-normal, decided by the prompt, so that both arms agree."""

    median_tokens: float = 512.0
    log_sd: float = 0.7


@dataclass(frozen=True)
class Profile:
    """Everything that decides how fast and how well the simulated engine works. Same document for both arms."""

    time_scale: float = 4.0
    """Multiplies every step and draft time."""
    step_milliseconds: LinearCost = LinearCost(constant=7.093, per_batched_token=0.02101, per_kv_token=3.93e-5)
    step_noise_sd: float = 0.01
    """Relative standard deviation of one step's time."""
    kv_capacity_tokens: int = 430_000
    block_size: int = 16
    max_model_len: int = 131_072
    """Used when neither --max-model-len nor a config.json gives one."""
    vocab_size: int = 128_256
    output_length: OutputLength = OutputLength()
    proposers: Mapping[str, ProposerProfile] = field(default_factory=lambda: DEFAULT_PROPOSERS)
    drafts: Mapping[str, ProposerProfile] = field(default_factory=dict)
    """Overrides by draft model name (shell pattern, first match wins): a good and a bad draft under one profile."""
    startup_seconds: float = 1.0
    config_error_seconds: float = 0.2
    """Time until a refused configuration ends (the real engine takes 8 to 17 s)."""
    teardown_seconds: float = 0.3
    """Time between the last answer and the exit when SIGTERM has a shutdown timeout (measured: 4 s)."""
    sigterm_without_timeout: str = "abort"
    """What clients see with --shutdown-timeout 0. Both were measured: `abort`: streams end with finish_reason "abort"
    and the process leaves at once; `hold`: streams stall and the process stays while a client holds its connection."""
    engine_dead_seconds: float = 1.0
    """Time between the death of the engine and the exit of the process (measured: up to 5 s)."""
    installed: tuple[str, ...] = ("arctic-inference",)
    """Optional packages of the image; without arctic-inference the method suffix ends with the real ImportError."""
    engine_version: str = "0.32.0"

    def proposer(self, method: str, draft_model: str | None) -> ProposerProfile:
        """The behaviour of a method with a draft model."""
        for pattern, override in self.drafts.items():
            if draft_model is not None and fnmatch.fnmatchcase(draft_model, pattern):
                return override
        return self.proposers.get(method, ProposerProfile())


def load_profile(environment: Mapping[str, str] = os.environ) -> Profile:
    """Read VLLM_SIM_PROFILE. Raises ProfileError."""
    text = environment.get(PROFILE_VARIABLE, "").strip()
    if not text:
        return Profile()
    if not text.startswith("{"):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            raise ProfileError(f"{PROFILE_VARIABLE}: {text!r} is neither JSON nor a readable file: {error}") from error
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ProfileError(f"{PROFILE_VARIABLE} is not JSON: {error}") from error
    return parse_profile(document)


def parse_profile(document: object) -> Profile:
    """A JSON document to a Profile. Raises ProfileError naming the field."""
    data = _object(document, "profile")
    known = {entry.name for entry in fields(Profile)}
    for name in data:
        if name not in known:
            raise ProfileError(f"profile.{name}: unknown field; known are {', '.join(sorted(known))}")
    profile = Profile()
    values: dict[str, Any] = {}
    for name, value in data.items():
        path = f"profile.{name}"
        if name == "step_milliseconds":
            values[name] = _cost(value, profile.step_milliseconds, path)
        elif name == "output_length":
            values[name] = _merge(OutputLength(), value, path)
        elif name == "proposers":
            values[name] = DEFAULT_PROPOSERS | {
                method: _proposer(entry, DEFAULT_PROPOSERS.get(method, ProposerProfile()), f"{path}.{method}")
                for method, entry in _object(value, path).items()
            }
        elif name == "drafts":
            continue
        elif name == "installed":
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise ProfileError(f"{path} must be a list of package names")
            values[name] = tuple(value)
        else:
            values[name] = _scalar(value, getattr(profile, name), path)
    profile = replace(profile, **values)
    if profile.sigterm_without_timeout not in ("abort", "hold"):
        raise ProfileError('profile.sigterm_without_timeout must be "abort" or "hold"')
    return replace(profile, drafts=_drafts(data.get("drafts", {}), profile)) if "drafts" in data else profile


def _drafts(value: object, profile: Profile) -> dict[str, ProposerProfile]:
    found: dict[str, ProposerProfile] = {}
    for pattern, entry in _object(value, "profile.drafts").items():
        path = f"profile.drafts.{pattern}"
        body = dict(_object(entry, path))
        base = profile.proposers.get(str(body.pop("method", "eagle3")), ProposerProfile())
        found[pattern] = _proposer(body, base, path)
    return found


def _proposer(value: object, base: ProposerProfile, path: str) -> ProposerProfile:
    data = dict(_object(value, path))
    changes: dict[str, Any] = {}
    if "acceptance" in data:
        rates = data.pop("acceptance")
        if not isinstance(rates, list) or not rates or not all(_is_share(rate) for rate in rates):
            raise ProfileError(f"{path}.acceptance must be a list of numbers between 0 and 1")
        changes["acceptance"] = tuple(float(rate) for rate in rates)
    if "draft_milliseconds" in data:
        changes["draft_milliseconds"] = _cost(
            data.pop("draft_milliseconds"), base.draft_milliseconds, f"{path}.draft_milliseconds"
        )
    return replace(_merge(base, data, path), **changes)


def _cost(value: object, base: LinearCost, path: str) -> LinearCost:
    """A number is a constant cost; an object overrides single coefficients."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return LinearCost(constant=float(value))
    return _merge(base, value, path)


def _merge(base: T, value: object, path: str) -> T:
    known = {entry.name for entry in fields(base)}  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for name, entry in _object(value, path).items():
        if name not in known:
            raise ProfileError(f"{path}.{name}: unknown field; known are {', '.join(sorted(known))}")
        changes[name] = _scalar(entry, getattr(base, name), f"{path}.{name}")
    return replace(base, **changes)  # type: ignore[type-var]


def _scalar(value: object, default: object, path: str) -> object:
    if isinstance(default, str):
        if not isinstance(value, str):
            raise ProfileError(f"{path} must be text")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise ProfileError(f"{path} must be a number of at least 0, not {value!r}")
    return int(value) if isinstance(default, int) else float(value)


def _is_share(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _object(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProfileError(f"{path} must be a JSON object, not {value!r}")
    return value
