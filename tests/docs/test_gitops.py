"""What docs/gitops.md ships: Argo CD's health script and Flux's expressions, on every state a deployment can be in."""

import re
from pathlib import Path
from typing import Any

import cel
import pytest
import yaml
from lupa import LuaRuntime
from specfleet.api.conditions import ConditionStatus, ConditionType
from specfleet.api.status import ArmRole, Phase

from tests.alerts.made import condition, deployment
from tests.decide.test_conditions import kstatus
from tests.decide.test_road import promoted
from tests.decide.world import World

DOCS = Path(__file__).parents[2] / "docs"
TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE
READY, STALLED = ConditionType.READY, ConditionType.STALLED


def _object(generation: int = 2, **status: Any) -> dict[str, Any]:
    wire = deployment(observed_generation=2, **status).to_wire()
    wire["metadata"]["generation"] = generation
    return wire


def _state(ready: ConditionStatus, stalled: ConditionStatus, phase: Phase, **more: Any) -> dict[str, Any]:
    said = [condition(READY, ready, "R", "said"), condition(STALLED, stalled, "S", "said")]
    return _object(conditions=said, phase=phase, **more)


# state -> (object, Argo CD, Flux); Flux: current, failed or in progress
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "not seen yet": (
        {"metadata": {"generation": 1, "name": "llama"}, "spec": {}},
        "Progressing",
        "in progress",
    ),
    "seen, without conditions": ({**_object(), "status": {"observedGeneration": 2}}, "Progressing", "in progress"),
    "a change not seen yet": (
        _object(generation=3, conditions=[condition(READY, TRUE, "Serving")]),
        "Progressing",
        "in progress",
    ),
    "coming up": (_state(FALSE, FALSE, Phase.DEPLOYING), "Progressing", "in progress"),
    "serving": (_state(TRUE, FALSE, Phase.SPECULATIVE), "Healthy", "current"),
    "a trial in flight": (_state(TRUE, FALSE, Phase.CANARY), "Healthy", "current"),
    "speculation rolled back": (_state(TRUE, FALSE, Phase.ROLLED_BACK), "Healthy", "current"),
    "a changed engine rolled back": (_state(FALSE, TRUE, Phase.SPECULATIVE), "Degraded", "failed"),
}


@pytest.mark.parametrize("case", CASES)
def test_argo_cd_health(case: str) -> None:
    lua = LuaRuntime(unpack_returned_tuples=True)
    body, wanted, _ = CASES[case]
    lua.globals().obj = lua.table_from(body, recursive=True)
    health = lua.execute((DOCS / "gitops" / "health.lua").read_text())
    assert health["status"] == wanted
    assert health["message"]


@pytest.mark.parametrize("case", CASES)
def test_flux_health_expressions(case: str) -> None:
    body, _, wanted = CASES[case]
    context = cel.Context({"metadata": body["metadata"], "status": body.get("status", {})})
    # Flux evaluates failed first, then current; status is an empty map while the object has none.
    found = next((name for name in ("failed", "current") if cel.evaluate(_expressions()[name], context)), "in progress")
    assert found == wanted


def _expressions() -> dict[str, str]:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "gitops.md").read_text(), re.S)
    kustomization = next(one for one in map(yaml.safe_load, blocks) if one.get("kind") == "Kustomization")
    found: dict[str, str] = kustomization["spec"]["healthCheckExprs"][0]
    return found


def test_the_worked_example_is_what_happens() -> None:
    page = (DOCS / "gitops.md").read_text()
    script = (DOCS / "gitops" / "health.lua").read_text()
    seen: list[tuple[str, str, str]] = []

    def look(world: World) -> None:
        assert world.status is not None
        body = {"metadata": {"generation": world.generation, "name": "llama"}, "status": world.status.to_wire()}
        lua = LuaRuntime(unpack_returned_tuples=True)
        lua.globals().obj = lua.table_from(body, recursive=True)
        health = lua.execute(script)
        seen.append((world.status.phase.value, kstatus(world), f"{health['status']}: {health['message']}"))

    world = promoted()
    look(world)
    world.immune = {pod.uid for pod in world.pods()}
    world.broken_roles = frozenset({ArmRole.BASELINE})
    before = world.spec
    world.change(engine={**before["engine"], "image": "vllm/vllm-openai:v0.33.0", "startupTimeoutSeconds": 120})
    look(world)
    world.reconcile()
    look(world)
    assert world.run(1200, until=lambda one: bool(one.decisions("RefuseRevision")))
    world.run(30)
    look(world)
    world.change(engine=before["engine"])
    world.run(60)
    look(world)
    rows = [
        line.strip("|").split("|")
        for line in page.splitlines()
        if re.search(r"\| (Current|InProgress|Failed) \|", line)
    ]
    assert len(rows) == len(seen)
    for cells, (phase, computed, argo) in zip(rows, seen, strict=True):
        assert cells[1].strip() == phase
        assert cells[5].strip() == computed
        assert argo.startswith(cells[6].strip().removesuffix("..."))
