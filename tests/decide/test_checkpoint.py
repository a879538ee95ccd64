"""A watch that is thrown away and gone on with from a checkpoint reports what one that never stopped reports."""

import dataclasses
import json
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specfleet.api.speculation import Method
from specfleet.api.status import ArmRole, Calibration, LoadPoint
from specfleet.decide.checkpoint import AHEAD_SECONDS, LAYOUT, OLDEST_SECONDS, Checkpoint, refusal
from specfleet.decide.checkpoint_format import (
    LIMIT_RAW_BYTES,
    SHARDS,
    VERSION,
    CheckpointError,
    decode,
    encode,
    shard_of,
)
from specfleet.decide.counters import COUNTERS, GAUGES, Counter, PodWindow, TargetFeed, Window
from specfleet.decide.watch import Watch
from specfleet.decide.watch_report import Answer, Signal, Stage, WatchReport
from specfleet.decide.watch_target import Key, Target, TargetPod

START = datetime(2026, 11, 2, tzinfo=UTC)
SECONDS = 60.0
PODS = {ArmRole.SPECULATIVE: ("s-0", "s-1"), ArmRole.BASELINE: ("p-0",)}
CALIBRATION = Calibration(
    fingerprint="f",
    since=START - timedelta(days=7),
    acceptance_rate=0.5,
    position_zero_rate=0.7,
    accepted_length=2.5,
    drafted_tokens=5_000_000,
    load_points=[
        LoadPoint(role=role, tokens_per_second_per_pod=128, tpot_seconds=0.02, ttft_seconds=0.1, requests=5000)
        for role in PODS
    ],
)


def target(number: int, **fields: Any) -> Target:
    arms = {role: tuple(TargetPod(name, name, START) for name in names) for role, names in PODS.items()}
    usual: dict[str, Any] = {"calibration": CALIBRATION, "method": Method.EAGLE3, "fingerprint": "f", "since": START}
    return Target(("ns", f"n-{number}", f"u-{number}"), arms, window_seconds=SECONDS, **(usual | fields))


def pod(rng: np.random.Generator, drafts: bool, acceptance: float, slow: float, errors: float) -> PodWindow:
    counts = np.zeros(COUNTERS)
    requests = float(rng.poisson(60))
    steps = requests * 50
    if drafts:
        counts[Counter.DRAFTS], counts[Counter.DRAFT_TOKENS] = steps, 3 * steps
        counts[Counter.ACCEPTED_TOKENS] = float(rng.binomial(int(3 * steps), acceptance))
        counts[Counter.ACCEPTED_FIRST] = float(rng.binomial(int(steps), min(1.0, 1.4 * acceptance)))
    counts[Counter.FIRST_TOKENS] = counts[Counter.FINISHED] = requests
    counts[Counter.GENERATED_TOKENS] = requests + steps + counts[Counter.ACCEPTED_TOKENS]
    counts[Counter.STEPS], counts[Counter.STEP_SECONDS] = steps, steps * 0.05 * slow * rng.uniform(0.95, 1.05)
    counts[Counter.TTFT_SECONDS] = requests * 0.1 * slow
    counts[Counter.HTTP_SERVER_ERROR] = float(rng.poisson(errors))
    gauges = np.array([rng.uniform(0, 9), 0.0, rng.uniform()])
    return PodWindow(SECONDS, counts, gauges[:GAUGES])


def windows(
    seed: int, index: int, acceptance: float, slow: float, errors: float = 0.2
) -> dict[ArmRole, tuple[Window, ...]]:
    """What one tick brings for one deployment."""
    rng = np.random.default_rng([seed, index])
    begin = START.timestamp() + index * SECONDS
    return {
        role: (
            Window(
                begin,
                begin + SECONDS,
                Answer.OK,
                f"window {index}",
                {
                    name: pod(rng, drafts, acceptance, slow if drafts else 1.0, errors if drafts else 0.2)
                    for name in names
                    if rng.uniform() < 0.97
                },
            ),
        )
        for role, names in PODS.items()
        for drafts in [role is ArmRole.SPECULATIVE]
        if rng.uniform() < 0.97
    }


def feed(
    watch: Watch, targets: list[Target], index: int, acceptance: float = 0.5, slow: float = 1.0, errors: float = 0.2
) -> None:
    feeds = {
        one.key: TargetFeed(one, windows(number, index, acceptance, slow, errors), dict.fromkeys(PODS, (Answer.OK, "")))
        for number, one in enumerate(targets)
    }
    watch.observe(START + timedelta(seconds=(index + 1) * SECONDS), feeds)


def stored(watch: Watch, keys: list[Key] | None = None) -> list[Checkpoint]:
    """As another process reads it: through the bytes."""
    found = [one for key in keys or sorted(watch.watched()) if (one := watch.checkpoint(key)) is not None]
    data, left_out = encode(found)
    assert left_out == []
    return decode(data)


def resumed(saved: list[Checkpoint]) -> Watch:
    watch = Watch()
    watch.saved.add(saved)
    return watch


def told(report: WatchReport) -> str:
    """All of it, to the last bit."""
    return repr(dataclasses.asdict(report))


def reports(watch: Watch, targets: list[Target]) -> list[str]:
    return [told(watch.report(one.key)) for one in targets]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"calibration": None},
        {"calibration": CALIBRATION.model_copy(update={"dispersion": 30.0, "source": "Week"})},
        {"method": Method.NGRAM},
    ],
    ids=["a dispersion is being measured", "a first calibration is being taken", "after the first week", "n-gram"],
)
@given(
    breaks=st.sets(st.integers(1, 259), max_size=6),
    acceptance=st.floats(0.3, 0.5),
    slow=st.floats(1.0, 1.4),
    bad_from=st.integers(0, 260),
)
@settings(max_examples=4, deadline=None)
def test_interrupted_after_any_window_it_reports_the_same(
    fields: dict[str, Any], breaks: set[int], acceptance: float, slow: float, bad_from: int
) -> None:
    """A decay and a slow-down that begin somewhere, through Suspect and Confirmed and a measured dispersion."""
    targets = [target(number, **fields) for number in range(2)]
    steady, broken = Watch(), Watch()
    for index in range(260):
        wrong = (acceptance, slow) if index >= bad_from else (0.5, 1.0)
        if index in breaks:
            broken = resumed(stored(broken))
        for watch in (steady, broken):
            feed(watch, targets, index, *wrong)
        if index % 20 == 0 or index in breaks:
            assert reports(broken, targets) == reports(steady, targets)
    assert reports(broken, targets) == reports(steady, targets)


def test_the_scene_of_these_tests_does_reach_a_confirmed_suspicion() -> None:
    watch, one = Watch(), target(0)
    for index in range(120):
        feed(watch, [one], index, 0.35 if index > 40 else 0.5)
    stages = {found.signal: found.stage for found in watch.report(one.key).suspicions}
    assert stages[Signal.ACCEPTANCE_DRIFT] is Stage.CONFIRMED


def empty(index: int) -> dict[ArmRole, tuple[Window, ...]]:
    """A server that answers and has no samples."""
    begin = START.timestamp() + index * SECONDS
    return {role: (Window(begin, begin + SECONDS, Answer.TARGET_DOWN, "no samples", {}),) for role in PODS}


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (Answer.UNAVAILABLE, {}),
        (Answer.INSUFFICIENT, windows(0, 121, 0.35, 1.0)),
        (Answer.TARGET_DOWN, empty(299)),
    ],
    ids=["the metrics server is away", "the replay is at three hours ago", "the metrics server has lost its samples"],
)
def test_what_was_found_hours_ago_does_not_count_until_something_is_measured_again(
    answer: Answer, found: dict[ArmRole, tuple[Window, ...]], restarts: bool
) -> None:
    watch, one = Watch(), target(0)
    for index in range(120):
        feed(watch, [one], index, 0.35 if index > 40 else 0.5)
    before = {finding.signal: finding.stage for finding in watch.report(one.key).suspicions}
    assert before[Signal.ACCEPTANCE_DRIFT] is Stage.CONFIRMED
    if restarts:
        watch = resumed(stored(watch))
    now = START + timedelta(seconds=300 * SECONDS)
    watch.observe(now, {one.key: TargetFeed(one, found, dict.fromkeys(PODS, (answer, "scripted")))})
    report = watch.report(one.key)
    assert report.suspicions == ()
    assert report.answer is not Answer.OK
    assert "nothing has been measured since 2026-11-02 02:0" in report.message
    feed(watch, [one], 300, 0.35)
    after = {finding.signal: finding.stage for finding in watch.report(one.key).suspicions}
    assert after == before


def test_after_a_crash_the_windows_since_the_last_checkpoint_are_enough() -> None:
    one = target(0)
    steady, lost = Watch(), Watch()
    for index in range(90):
        feed(steady, [one], index, 0.42)
        if index < 50:
            feed(lost, [one], index, 0.42)
        if index == 30:
            saved = stored(lost)
    watch = resumed(saved)
    begin = watch.saved.resumes_at(one)
    assert begin == START.timestamp() + 31 * SECONDS
    for index in range(29, 90):
        # Two windows too many: what a checkpoint holds is not counted again.
        feed(watch, [one], index, 0.42)
    assert reports(watch, [one]) == reports(steady, [one])


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"since": START + timedelta(minutes=75)}, 75),
        ({"confirm_seconds": 1800.0, "interesting_drop_ratio": 0.3}, 70),
        ({"arms": {ArmRole.SPECULATIVE: (TargetPod("s-0", "s-0", START),)}}, 70),
    ],
    ids=["another step, some windows after the checkpoint", "other limits", "fewer pods"],
)
def test_what_changed_meanwhile_counts_as_if_the_watch_had_been_told_of_it(change: dict[str, Any], at: int) -> None:
    before = target(0)
    after = replace(before, **change)
    steady = Watch()
    for index in range(70):
        feed(steady, [before], index, 0.42, 1.2)
    broken = resumed(stored(steady))
    for index in range(70, 90):
        feed(steady, [after if index >= at else before], index, 0.42, 1.2)
        feed(broken, [after], index, 0.42, 1.2)
    assert reports(broken, [after]) == reports(steady, [after])


OTHER_CALIBRATION = CALIBRATION.model_copy(update={"since": START + timedelta(minutes=95)})


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        ({}, {"fingerprint": "g"}),
        ({}, {"calibration": OTHER_CALIBRATION}),
        ({}, {"calibration": None, "since": START + timedelta(minutes=95)}),
        ({"calibration": None}, {}),
        ({"calibration": None}, {"calibration": None, "since": START + timedelta(minutes=95)}),
        ({"fingerprint": "g"}, {"fingerprint": "g", "since": START + timedelta(minutes=95)}),
    ],
    ids=[
        "another arm",
        "promoted once more after a roll-back",
        "what was normal is learned anew",
        "what is normal has been learned",
        "the same arm in its next canary",
        "the same engine in its next canary, beside a calibrated arm",
    ],
)
def test_a_checkpoint_of_another_life_is_void(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """An outburst of errors and a hung pod of then accuse nobody now, and no window of then makes a new normal."""
    before, after = target(0, **saved), target(0, **now)
    old = Watch()
    for index in range(90):
        feed(old, [before], index, 0.35, 1.4, errors=30.0)
    assert old.report(before.key).suspicions
    fresh, broken = Watch(), resumed(stored(old))
    assert broken.saved.resumes_at(after) is None
    for index in range(95, 100):
        for watch in (fresh, broken):
            feed(watch, [after], index)
    assert reports(broken, [after]) == reports(fresh, [after])
    assert broken.report(after.key).suspicions == ()


def test_no_window_of_before_the_reset_makes_a_new_normal() -> None:
    """They come late, or again with a replay: what a reset was asked for is just that they are not normal any more."""
    reset = 40
    asked = target(0, calibration=None, since=START + timedelta(seconds=reset * SECONDS))
    late, clean = Watch(), Watch()
    for index in range(160):
        feed(late, [asked], index, 0.5 if index >= reset else 0.2)
        if index >= reset:
            feed(clean, [asked], index, 0.5)
    proposed = clean.report(asked.key).calibration
    assert proposed is not None
    assert late.report(asked.key).calibration == proposed


def test_a_namesake_goes_on_with_nothing() -> None:
    watch = Watch()
    feed(watch, [target(0)], 0)
    fresh = resumed(stored(watch))
    assert fresh.saved.resumes_at(target(0)) == START.timestamp() + SECONDS
    assert fresh.saved.resumes_at(replace(target(0), key=("ns", "n-0", "its-namesake"))) is None


def test_what_was_not_gone_on_with_yet_is_kept_for_the_next_process() -> None:
    watch = Watch()
    feed(watch, [target(0), target(1)], 0)
    fresh = resumed(stored(watch))
    feed(fresh, [target(1)], 1)
    assert fresh.saved.keys() == {target(0).key}
    kept = fresh.checkpoint(target(0).key)
    assert kept is not None
    assert kept.until == START.timestamp() + SECONDS
    fresh.saved.keep(lambda key: key != target(0).key)
    assert fresh.checkpoint(target(0).key) is None


def one_checkpoint() -> Checkpoint:
    watch = Watch()
    for index in range(3):
        feed(watch, [target(0)], index)
    found = watch.checkpoint(target(0).key)
    assert found is not None
    return found


ONE = one_checkpoint()


def spoiled(name: str, value: float) -> Checkpoint:
    """With one number that no watch writes; `name` of a column of the row."""
    watch = resumed(decode(encode([ONE])[0]))
    watch.aim(target(0), {})
    state = ONE.state.copy()
    begin = 0
    for column, view in watch._views(0).items():
        if column == name:
            state[begin] = value
        begin += view.size
    assert not np.array_equal(state, ONE.state, equal_nan=True)
    return replace(ONE, state=state)


@pytest.mark.parametrize(
    ("found", "seconds", "words"),
    [
        (ONE, 0.0, None),
        (ONE, -AHEAD_SECONDS + 1, None),
        (ONE, OLDEST_SECONDS - 1, None),
        (ONE, -AHEAD_SECONDS - 1, "a clock has jumped"),
        (ONE, OLDEST_SECONDS + 1, "days old"),
        (replace(ONE, until=float("nan")), 0.0, "a clock has jumped"),
        (replace(ONE, dispersion=float("inf")), 0.0, "no watch has written"),
        (spoiled("bank stage", 7), 0.0, "no watch has written"),
        (spoiled("bank stage", 0.5), 0.0, "no watch has written"),
        (spoiled("bank level", float("nan")), 0.0, "no watch has written"),
        (spoiled("bank onset", 1e20), 0.0, "no watch has written"),
        (spoiled("last 0 answers", 99), 0.0, "no watch has written"),
        (spoiled("step 1 end", float("inf")), 0.0, "no watch has written"),
    ],
)
def test_a_checkpoint_that_cannot_be_right_is_refused_with_its_reason(
    found: Checkpoint, seconds: float, words: str | None
) -> None:
    said = refusal(found, ONE.until + seconds)
    assert (said is None) if words is None else (said is not None and words in said)


DATA = encode([ONE])[0]


def packed(header: Any, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return VERSION + zlib.compress(len(text).to_bytes(4, "little") + text + body)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        VERSION,
        b"specfleet watch 2\n" + DATA[len(VERSION) :],
        DATA[:-1],
        DATA[: len(DATA) // 2],
        DATA + b"x",
        VERSION + zlib.compress(b"\0" * (LIMIT_RAW_BYTES + 1)),
        VERSION + zlib.compress(b"\xff\xff\xff\xff"),
        packed([]),
        packed({"layout": "of another operator", "rows": []}),
        packed({"layout": LAYOUT, "rows": [{}]}),
        packed({"layout": LAYOUT, "rows": []}, b"\0" * 7),
        packed({"layout": LAYOUT, "rows": []}, b"\0" * 8),
        VERSION + zlib.compress(b"\x40\x0d\x03\x00" + b"[" * 200_000),
    ],
)
def test_bytes_that_are_no_checkpoints_are_refused(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        decode(data)


@given(st.binary(max_size=200), st.integers(0, len(DATA) - 1), st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_no_bytes_raise_anything_else(rubbish: bytes, place: int, flip: int) -> None:
    flipped = bytearray(DATA)
    flipped[place] ^= flip
    for data in (rubbish, VERSION + rubbish, VERSION + zlib.compress(rubbish)):
        with pytest.raises(CheckpointError):
            decode(data)
    try:
        found = decode(bytes(flipped))
    except CheckpointError:
        return
    # There may be two ways to write the same with zlib; another content has another checksum.
    assert encode(found)[0] == DATA


def test_where_there_is_no_room_the_most_suspicious_are_kept() -> None:
    watch = Watch()
    targets = [target(number) for number in range(12)]
    for index in range(30):
        feed(watch, targets[:6], index, 0.5)
        feed(watch, targets[6:], index, 0.3)
    found = [one for key in sorted(watch.watched()) if (one := watch.checkpoint(key)) is not None]
    whole, none = encode(found)
    assert none == []
    data, left_out = encode(found, len(whole) // 2)
    assert len(data) <= len(whole) // 2
    kept = decode(data)
    assert 0 < len(left_out) < len(found)
    assert {one.key for one in kept} | set(left_out) == {one.key for one in found}
    by_key = {one.key: one.suspicion for one in found}
    assert min(one.suspicion for one in kept) >= max(by_key[key] for key in left_out)
    assert encode(found, 1)[1] != []


def test_the_shard_of_a_deployment_is_the_same_in_every_process() -> None:
    assert shard_of(("ml", "llama", "u-1")) == shard_of(("ml", "llama", "u-2/promoted")) == 53
    assert len({shard_of(("ml", f"llama-{number}", "u")) for number in range(2000)}) == SHARDS


def test_past_half_of_a_threshold_is_told_before_there_is_a_suspicion() -> None:
    watch, one = Watch(), target(0)
    first: int | None = None
    for index in range(60):
        feed(watch, [one], index, 0.4)
        if watch.elevated() and first is None:
            first = index
            assert not watch.report(one.key).suspicions
        if watch.report(one.key).suspicions:
            break
    assert first is not None
    assert watch.report(one.key).suspicions
    assert {key for key, _, _ in watch.elevated()} == {one.key}
    assert {stage for _, _, stage in watch.elevated()} > {0}
