"""The whole benchmark on a real engine: plain against ngram and draft_model, judged, and the verdict reproduced."""

import argparse
import json
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from specfleet.api.base import API_VERSION
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.status import ArmRole, DecisionRecord, Verdict
from specfleet.benchmark.plan import ArmTarget, build_plan, built_in_prompts
from specfleet.benchmark.result import DriverReport, parse_report
from specfleet.cli import verify
from specfleet.decide.evidence import judge
from specfleet.engine.arguments import build_arm

from benchmarks.evidence.__main__ import ASSUMED
from benchmarks.evidence.noise import noise_of, noise_table
from e2e.engine.engine import free_port, running
from e2e.engine.set_up import environment, folder
from e2e.engine.specs import proposers, read, spec

PAIRS = 3
MATRIX: dict[str, Any] = {
    "tiers": [{"name": "low", "requestsPerSecond": 1}, {"name": "peak", "concurrency": 3}],
    "slices": [{"name": "chat", "promptTokens": 48, "outputTokens": 32}],
    "pairs": PAIRS,
    "runSeconds": 10,
    "warmupSeconds": 2,
    "minimumRequests": 10,
}


@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_a_proposer_is_measured_judged_and_its_verdict_reproduced(
    method: str, models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = {role: free_port() for role in ArmRole}
    raw = {**spec(models, proposers(models)[method]), "benchmark": MATRIX}
    model, _ = read(raw)
    assert model is not None
    assert model.speculation is not None
    arms = {
        ArmRole.BASELINE: build_arm(model, None),
        ArmRole.SPECULATIVE: build_arm(model, model.speculation.proposers()[0]),
    }
    with ExitStack() as stack:
        for role, arm in arms.items():
            args = [str(ports[role]) if word == str(model.engine.port) else word for word in arm.args]
            engine = stack.enter_context(running(args, ports[role], tmp_path / f"{role.value}.log"))
            assert engine.wait_until_ready(), engine.said[-3000:]
        evidence = []
        for pair in range(PAIRS):
            targets = {
                role: ArmTarget(f"http://127.0.0.1:{ports[role]}", role.value, arm.fingerprint)
                for role, arm in arms.items()
            }
            report, begun = measured(model, pair, targets, tmp_path / str(pair))
            assert [(run.tier, run.arm) for run in report.runs].count(("low", ArmRole.BASELINE)) == 1
            assert len(report.runs) == 4
            evidence.append(evidence_of(report, pair, method, targets, begun))
    probes = {one.name: one for one in evidence[0].request_probes}
    assert probes["min_p"].broken
    assert probes["logit_bias"].broken
    assert not probes["logprobs"].broken
    verdict = judge(model, evidence, budget_spent=True)
    with capsys.disabled():
        print(f"\n{method}: {verdict.verdict.value} {verdict.reason}: {verdict.message}")
        print(noise_table([noise_of(f"real engine, {method}", evidence)], ASSUMED))
    assert verdict.verdict is not Verdict.ERROR, verdict.message
    stored = tmp_path / "stored.json"
    stored.write_text(json.dumps(objects(raw, evidence, verdict.verdict, verdict.reason, verdict.message)))
    assert verified(stored) == 0
    assert "agrees" in capsys.readouterr().out


def measured(
    model: DeploymentSpec, pair: int, targets: dict[ArmRole, ArmTarget], place: Path
) -> tuple[DriverReport, datetime]:
    """One pair by the driver as the Job runs it, with the real `vllm bench serve`."""
    place.mkdir()
    plan = build_plan(model, pair, targets, None, None, "Qualify", "e2e")
    (place / "prompts.jsonl").write_text(built_in_prompts())
    plan.update(
        bench_command=[str(folder() / "bin" / "vllm"), "bench", "serve"],
        prompts_file=str(place / "prompts.jsonl"),
        work_dir=str(place / "work"),
        termination_path=str(place / "message"),
        # Client and both engines share two cores here; a production client has its own.
        client_lag_limit_seconds=0.5,
        client_lag_mean_limit_seconds=0.1,
        little_law_tolerance_ratio=0.3,
    )
    (place / "plan.json").write_text(json.dumps(plan))
    begun = datetime.now(UTC)
    subprocess.run(
        [sys.executable, "-m", "specfleet.benchmark.driver", "--plan", place / "plan.json"],
        check=True,
        env=environment(),
    )
    report = parse_report((place / "message").read_text())
    assert isinstance(report, DriverReport), report
    return report, begun


def evidence_of(
    report: DriverReport, pair: int, method: str, targets: dict[ArmRole, ArmTarget], begun: datetime
) -> BenchmarkEvidenceSpec:
    """What the operator would store."""
    finished = datetime.now(UTC)
    return BenchmarkEvidenceSpec(
        deployment="real",
        benchmark="e2e",
        purpose="Qualify",
        unit=f"p{pair}",
        pair=pair,
        baseline=targets[ArmRole.BASELINE].fingerprint,
        candidate=targets[ArmRole.SPECULATIVE].fingerprint,
        proposer=method,
        engine_version="0.32.0",
        started=begun,
        finished=finished,
        gpu_seconds=2 * (finished - begun).total_seconds(),
        runs=list(report.runs),
        request_probes=list(report.request_probes),
        greedy_texts={name: "".join(texts) for name, texts in report.texts.items()},
    )


def objects(
    raw: dict[str, Any], evidence: list[BenchmarkEvidenceSpec], verdict: Verdict, reason: str, message: str
) -> dict[str, Any]:
    """The objects as kubectl would list them, with the decision recorded."""
    names = [f"real-e2e-{one.unit}" for one in evidence]
    record = DecisionRecord(
        time=datetime.now(UTC), action="Judge", verdict=verdict, reason=reason, message=message, evidence=names
    )
    deployment = {
        "apiVersion": API_VERSION,
        "kind": "SpeculativeDeployment",
        "metadata": {"name": "real", "namespace": "e2e", "uid": "1"},
        "spec": raw,
        "status": {"history": [record.to_wire()]},
    }
    items = [deployment]
    for name, one in zip(names, evidence, strict=True):
        metadata = {"name": name, "namespace": "e2e"}
        items.append(
            {"apiVersion": API_VERSION, "kind": "SpeculativeBenchmark", "metadata": metadata, "spec": one.to_wire()}
        )
    return {"kind": "List", "items": items}


def verified(stored: Path) -> int:
    """Exit code of `kubectl specfleet verify`."""
    top = argparse.ArgumentParser()
    verify.register(top.add_subparsers())
    options = top.parse_args(["verify", "-f", str(stored)])
    code: int = options.run(options)
    return code
