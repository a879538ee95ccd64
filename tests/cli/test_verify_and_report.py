"""verify and report on stored objects, as kubectl would print them."""

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from specfleet.api.base import API_VERSION
from specfleet.api.deployment import DeploymentSpec
from specfleet.api.evidence import RequestProbe
from specfleet.api.status import ArmRole, DecisionRecord
from specfleet.cli import report, verify
from specfleet.decide.evidence import BenchmarkVerdict, criteria, judge
from specfleet.engine.arguments import build_arm

from benchmarks.evidence.truth import Effect, Noise, Truth, draw_pairs

SPEC = DeploymentSpec.model_validate(
    {
        "model": {"name": "m"},
        "engine": {"image": "vllm:0.32.0"},
        "speculation": {"method": "ngram", "numSpeculativeTokens": 3},
        "benchmark": {
            "tiers": [{"name": "low", "requestsPerSecond": 2}, {"name": "peak", "concurrency": 16}],
            "slices": [{"name": "chat", "label": "German", "temperature": 0.7, "topP": 0.9}, {"name": "code"}],
            "pairs": 3,
            "minimumRequests": 20,
        },
    }
)


def parse(command: Any, *words: str) -> int:
    import argparse

    top = argparse.ArgumentParser()
    command.register(top.add_subparsers())
    options = top.parse_args(words)
    code: int = options.run(options)
    return code


def objects(truth: Truth) -> tuple[dict[str, Any], BenchmarkVerdict]:
    assert SPEC.speculation is not None
    candidate = build_arm(SPEC, SPEC.speculation.proposers()[0]).fingerprint
    evidence = [
        one.model_copy(
            update={
                "candidate": candidate,
                "criteria": criteria(SPEC),
                "nodes": {ArmRole.BASELINE: "node-a", ArmRole.SPECULATIVE: "node-b"},
                "request_probes": [RequestProbe(name="min_p", baseline_status=200, speculative_status=400)],
                "runs": [
                    run.model_copy(update={"accepted_per_position": [3 * run.drafts // 5, run.drafts // 3]})
                    if run.drafts
                    else run
                    for run in one.runs
                ],
            }
        )
        for one in draw_pairs(SPEC, truth, Noise(), 3, np.random.default_rng(4))
    ]
    verdict = judge(SPEC, evidence)
    names = [f"d-b-{one.unit}" for one in evidence]
    record = DecisionRecord(
        time=datetime(2026, 1, 2, tzinfo=UTC),
        action="Judge",
        verdict=verdict.verdict,
        reason=verdict.reason,
        message=f"ngram k=3: {verdict.message}",
        evidence=names,
    )
    deployment = {
        "apiVersion": API_VERSION,
        "kind": "SpeculativeDeployment",
        "metadata": {"name": "d", "namespace": "ns", "uid": "1"},
        "spec": SPEC.to_wire(),
        "status": {"phase": "Canary", "history": [record.to_wire()], "lastDecision": record.to_wire()},
    }
    items = [deployment]
    for name, one in zip(names, evidence, strict=True):
        metadata = {"name": name, "namespace": "ns"}
        items.append(
            {"apiVersion": API_VERSION, "kind": "SpeculativeBenchmark", "metadata": metadata, "spec": one.to_wire()}
        )
    return {"kind": "List", "items": items}, verdict


GOOD = Truth(Effect(tpot=0.6, throughput=1.3))
MIXED = Truth(Effect(tpot=0.6), {"peak": Effect(tpot=1.3, throughput=0.8)})


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "objects.json"
    path.write_text(json.dumps(objects(GOOD)[0]))
    return path


@pytest.mark.parametrize("truth", [GOOD, MIXED, Truth()])
@pytest.mark.parametrize("name", [[], ["b"], ["d"], ["d-b-p1"]])
def test_a_verdict_is_reproduced_from_its_stored_runs(
    truth: Truth, name: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed, verdict = objects(truth)
    (tmp_path / "o.json").write_text(json.dumps(listed))
    assert parse(verify, "verify", *name, "-f", str(tmp_path / "o.json")) == 0
    told = capsys.readouterr().out
    assert "agrees" in told
    assert f"{verdict.verdict.value} {verdict.reason}: {verdict.message}" in told


def test_changed_margins_are_said_and_are_no_disagreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed, _ = objects(GOOD)
    listed["items"][0]["spec"]["benchmark"]["objective"] = {"minimumGainRatio": 5}
    (tmp_path / "o.json").write_text(json.dumps(listed))
    assert parse(verify, "verify", "-f", str(tmp_path / "o.json")) == 0
    told = capsys.readouterr().out
    assert "cannot be compared" in told
    assert "spec.guardrails or spec.benchmark" in told
    assert "recomputed Fail" in told


def test_a_verdict_that_a_cluster_recorded_is_reproduced(capsys: pytest.CaptureFixture[str]) -> None:
    """examples/quickstart.yaml on the test cluster: six pairs, three of them spoilt by a busy machine."""
    stored = Path(__file__).parent / "recorded" / "quickstart.json"
    assert parse(verify, "verify", "quickstart", "-f", str(stored)) == 0
    told = capsys.readouterr().out
    assert "(Qualify, eagle3 k=3): agrees" in told
    assert "recomputed Pass GainProven" in told
    assert "(3 pairs)" in told


def test_changed_evidence_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed, _ = objects(GOOD)
    for item in listed["items"][1:]:
        for run in item["spec"]["runs"]:
            if run["arm"] == "speculative":
                run["engineTpotSeconds"] *= 2
    (tmp_path / "o.json").write_text(json.dumps(listed))
    assert parse(verify, "verify", "-f", str(tmp_path / "o.json")) == 1
    assert "DISAGREES" in capsys.readouterr().out


def test_a_spec_that_has_changed_since_is_said_and_is_no_disagreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed, _ = objects(GOOD)
    listed["items"][0]["spec"]["speculation"]["numSpeculativeTokens"] = 5
    listed["items"][0]["spec"]["benchmark"]["objective"] = {"minimumGainRatio": 5}
    (tmp_path / "o.json").write_text(json.dumps(listed))
    assert parse(verify, "verify", "-f", str(tmp_path / "o.json")) == 0
    told = capsys.readouterr().out
    assert "cannot be compared" in told
    assert "not the one that was judged" in told


def test_evidence_without_a_record_is_judged_and_says_that_nothing_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed, _ = objects(GOOD)
    del listed["items"][0]["status"]
    (tmp_path / "o.yaml").write_text(json.dumps(listed))
    assert parse(verify, "verify", "-f", str(tmp_path / "o.yaml")) == 0
    assert "nothing recorded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda items: items[1:], "SpeculativeDeployment d is missing"),
        (lambda items: items[:1], "no evidence"),
        (lambda items: [items[0], {**items[1], "spec": {"deployment": "d"}}], "SpeculativeBenchmark d-b-p0"),
    ],
)
def test_unusable_input_says_what_is_wrong(
    change: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "o.json").write_text(json.dumps(change(objects(GOOD)[0]["items"])))
    assert parse(verify, "verify", "-f", str(tmp_path / "o.json")) == 2
    assert words in capsys.readouterr().err


class Tags(HTMLParser):
    """Collects what a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe"):
            self.loaded.append(tag)
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href")]


@pytest.mark.parametrize("truth", [GOOD, MIXED])
def test_the_page_needs_no_network_and_its_drawings_are_well_formed(truth: Truth, tmp_path: Path) -> None:
    listed, verdict = objects(truth)
    (tmp_path / "o.json").write_text(json.dumps(listed))
    page = tmp_path / "out.html"
    assert parse(report, "report", "d", "-f", str(tmp_path / "o.json"), "-o", str(page)) == 0
    text = page.read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.loaded == []
    drawings = re.findall(r"<svg.*?</svg>", text, re.S)
    assert len(drawings) >= 5
    titles = [ElementTree.fromstring(one).attrib["aria-label"] for one in drawings]
    drawn = ("gain per load tier", "95 % intervals", "TPOT over load", "TTFT over load", "acceptance per position")
    for wanted in drawn:
        assert any(wanted in title for title in titles)
    assert "nan" not in "".join(drawings)
    assert verdict.reason in text
    assert "agrees with the recorded verdict" in text
    assert "speculative" in text


def test_a_losing_tier_is_red_and_a_recommendation_is_written(tmp_path: Path) -> None:
    (tmp_path / "o.json").write_text(json.dumps(objects(MIXED)[0]))
    page = tmp_path / "out.html"
    parse(report, "report", "-f", str(tmp_path / "o.json"), "-o", str(page))
    assert "wins at low and loses at peak" in page.read_text()


def test_markdown_and_json_say_the_same(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(report, "report", "-f", str(stored), "--format", "md") == 0
    told = capsys.readouterr().out
    assert "| low/chat | Pass |" in told
    out = tmp_path / "out.json"
    assert parse(report, "report", "-f", str(stored), "-o", str(out)) == 0
    one = json.loads(out.read_text())["benchmarks"][0]
    assert one["verdict"] == "Pass"
    assert one["agreesWithRecord"] is True
    assert {cell["tier"] for cell in one["cells"]} == {"low", "peak"}
    assert one["acceptancePerPosition"]["low/chat"] == pytest.approx([0.6, 0.555], abs=0.01)
    assert len(one["latency"]) == 8
    assert one["nodes"]["0"] == {"baseline": "node-a", "speculative": "node-b"}
    assert one["requestProbes"][0]["name"] == "min_p"
    assert len(one["use"]) == 8
    assert {use["kvCachePeakRatio"] for use in one["use"]} == {0.3}
    assert [(piece["name"], piece.get("label")) for piece in one["slices"]] == [("chat", "German"), ("code", None)]


def test_every_format_shows_queue_cache_and_errors_per_cell_the_nodes_and_the_probed_requests(
    stored: Path, tmp_path: Path
) -> None:
    for ending, cell in (("html", "<td>{}</td>"), ("md", "| {} |")):
        page = tmp_path / f"r.{ending}"
        assert parse(report, "report", "-f", str(stored), "-o", str(page)) == 0
        text = page.read_text()
        for word in ("queue delay", "KV cache peak", "pre-emptions", "TTFT p95", "min_p", "node-a", "node-b"):
            assert word in text
        assert cell.format("low/chat") in text
        settings = ("chat", "German", "256", "128", "0.7", "0.9", "1")
        assert ("</td><td>" if ending == "html" else " | ").join(settings) in text
        assert "a difference between these nodes counts as one between the arms" in text


def test_an_unknown_name_lists_the_known_ones(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(report, "report", "other", "-f", str(stored)) == 2
    assert "there are: d" in capsys.readouterr().err


def test_a_format_that_is_not_supported_is_refused_and_nothing_is_written(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "r.pdf"
    assert parse(report, "report", "-f", str(stored), "-o", str(page)) == 2
    assert "no report can be written as .pdf; supported are .html, .htm, .md, .json" in capsys.readouterr().err
    assert not page.exists()
    assert parse(report, "report", "-f", str(stored), "-o", str(page), "--format", "md") == 0
    assert page.read_text().startswith("# ")


def test_a_misspelt_kind_of_this_api_is_not_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "o.yaml"
    file.write_text(f"apiVersion: {API_VERSION}\nkind: speculativeDeployment\nmetadata: {{name: d}}\n")
    assert parse(report, "report", "-f", str(file)) == 2
    assert "kind 'speculativeDeployment' is none of" in capsys.readouterr().err


def test_a_hyphen_writes_to_standard_output(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(report, "report", "-f", str(stored), "-o", "-", "--format", "md") == 0
    assert capsys.readouterr().out.startswith("# ")


def test_a_report_begins_with_the_recommendation_where_tiers_have_different_winners(tmp_path: Path) -> None:
    listed, _ = objects(MIXED)
    listed["items"][0]["status"]["recommendation"] = {
        "time": "2026-01-02T00:00:00Z",
        "message": "no proposer is best at every load. low: ngram k=3; peak: plain decoding",
        "tiers": [{"tier": "low", "proposer": "ngram k=3"}, {"tier": "peak", "proposer": "none"}],
    }
    (tmp_path / "o.json").write_text(json.dumps(listed))
    for ending in ("html", "md", "json"):
        assert parse(report, "report", "-f", str(tmp_path / "o.json"), "-o", str(tmp_path / f"r.{ending}")) == 0
        text = (tmp_path / f"r.{ending}").read_text()
        assert "no proposer is best at every load" in text[:3000]
    told = json.loads((tmp_path / "r.json").read_text())["recommendation"]
    assert [one["proposer"] for one in told["tiers"]] == ["ngram k=3", "none"]
