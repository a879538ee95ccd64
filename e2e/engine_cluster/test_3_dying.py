"""Configurations that turn Ready and die at the first request: no user ever meets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.engine.models import tiny_models
from e2e.engine_cluster import acts, bare_pods
from e2e.engine_cluster.bare_pods import pod_of, standing
from e2e.engine_cluster.deployments import SPACE, inside, tiny
from e2e.road.access import Access, wait_until
from e2e.scenarios.stage import Stage

SCHEDULE = [{"minBatchSize": 1, "maxBatchSize": 4, "tokens": 2}]
REFUSED_SECONDS = 600.0
GUARDED: dict[str, Any] = {"guardrails": {"minAgreementRatio": 0.9}}


def eagle3_of_other_layers() -> dict[str, Any]:
    """The head reads layers that the target does not have: an IndexError in the first forward pass."""
    head = {"model": inside(tiny_models() / "eagle3-layers"), "loadConfig": {"load_format": "dummy"}}
    return {"method": "eagle3", "numSpeculativeTokens": 3, "draft": head}


def medusa_with_a_schedule() -> dict[str, Any]:
    """An assertion in the first step."""
    head = {"model": inside(tiny_models() / "medusa")}
    return {"method": "medusa", "numSpeculativeTokens": 3, "draft": head, "tokensPerBatchSize": SCHEDULE}


CASES = {"eagle3-layers": eagle3_of_other_layers, "medusa-schedule": medusa_with_a_schedule}
DUMMY_TARGET = {"engine": {"args": ["--enforce-eager", "--max-num-seqs", "16", "--load-format", "dummy"]}}
"""Medusa does not read the draft's own load format."""
STARTED = "Application startup complete"


@pytest.fixture(scope="module")
def tried(access: Access) -> Iterator[Stage]:
    """One deployment, whose spec asks for one such configuration after the other."""
    with acts.on_real_stage(access, tiny("dying", None, GUARDED)) as stage:
        yield stage


@pytest.mark.parametrize(
    ("name", "reason"), [("eagle3-layers", "AuxiliaryLayersMissing"), ("medusa-schedule", "ScheduleKillsEngine")]
)
def test_what_dies_at_its_first_request_never_gets_one_of_a_user(
    tried: Stage, access: Access, name: str, reason: str
) -> None:
    acts.send_traffic(tried, rate=2.0, long_streams=0)
    access.apply([tiny("dying", CASES[name](), GUARDED)])
    tried.narrator.say("SPEC", name)

    def refused() -> bool:
        said = tried.condition("BenchmarkPassed")
        return said.get("status") == "False" and said.get("reason") == reason

    tried.follow("the candidate is refused", refused, REFUSED_SECONDS)
    tried.stay(5)
    said = tried.condition("BenchmarkPassed")
    tried.narrator.say("refused", f"{said['reason']}: {said.get('message')}")
    found = acts.end_traffic(tried)
    assert not acts.faults(found)
    shares = {sample.speculative_share or 0.0 for sample in tried.recorder.samples}
    assert shares == {0.0}, "the route pointed at the candidate"
    assert {one.fingerprint for one in found} == {str(tried.status["stable"]["baseline"])}
    assert tried.condition("Ready")["status"] == "True"
    assert tried.condition("SpeculationActive")["status"] == "False"


def test_where_no_rule_knew_it_the_start_up_probe_keeps_it_out_of_the_service(access: Access) -> None:
    ever_ready: set[str] = set()
    with standing(access, [pod_of(tiny(name, CASES[name](), {**GUARDED, **DUMMY_TARGET}), name) for name in CASES]):

        def died() -> bool:
            seen = [pod for name in CASES if (pod := bare_pods.found(access, name))]
            ever_ready.update(pod["metadata"]["name"] for pod in seen if acts.is_ready(pod))
            return len(seen) == len(CASES) and all(acts.restarts(pod) > 0 for pod in seen)

        wait_until(f"the engines of pods {', '.join(CASES)} have died", died, REFUSED_SECONDS)
        logs = {name: access.kubectl("logs", name, "-n", SPACE, "--previous").stdout for name in CASES}
    for name, log in logs.items():
        print(f"\n{name}: {log.strip().splitlines()[-1]}")
        assert STARTED in log, f"{name} died before it listened: that is another fault"
    assert not ever_ready
