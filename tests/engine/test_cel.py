"""The offline evaluator of the CRD's rules, against an independent CEL implementation."""

from copy import deepcopy
from typing import Any

import cel as reference
import pytest
from pydantic import BaseModel
from specfleet.api.deployment import DeploymentSpec, SpeculativeDeployment
from specfleet.api.evidence import BenchmarkEvidenceSpec
from specfleet.api.speculation import Method
from specfleet.engine.admission import read_spec, rules_of
from specfleet.engine.cel import CelError, compile_rule, holds
from specfleet.engine.model_tree import children_of

from tests.engine.specs import PROPOSERS, SCHEDULE, VALID, proposer, put, raw_spec


def models_below(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found = {model.__name__: model}
    for _, inner, _ in children_of(model):
        found |= models_below(inner)
    return found


RULES = sorted(
    {
        str(rule["rule"])
        for root in (SpeculativeDeployment, BenchmarkEvidenceSpec)
        for model in models_below(root).values()
        for rule in rules_of(model)
    }
)


def values_below(model: type[BaseModel], value: Any) -> list[tuple[type[BaseModel], Any]]:
    found = [(model, value)]
    for name, inner, many in children_of(model):
        below = value.get(name)
        for one in (below if many else [below]) if below is not None else []:
            found += values_below(inner, one)
    return found


TIER = {"name": "low", "concurrency": 4}
CHANGES: list[dict[str, Any]] = [
    {},
    {"guardrails": {}},
    {"engine.args": ["--disable-log-stats"]},
    {"engine.args": ["--seed", "1"]},
    {"engine.args": ["-sc", "{}"]},
    {"engine.args": ["--speculative-config={}"]},
    {"benchmark.tiers": [TIER, TIER]},
    {"benchmark.tiers": [TIER, {"name": "two", "capacityRatio": 0.5}]},
    {"benchmark.tiers": [{"name": "both", "concurrency": 4, "requestsPerSecond": 1}]},
    {"benchmark.tiers": [{"name": "neither"}]},
    {"benchmark.objective": {"tier": "low"}},
    {"benchmark.objective": {"tier": "absent"}},
    {"benchmark.objective": {"tier": "low"}, "benchmark.tiers": [TIER]},
    {"benchmark.objective": {"tier": "absent"}, "benchmark.tiers": [TIER]},
    {"benchmark.looks": [3, 8]},
    {"benchmark.looks": [9]},
    {"benchmark.looks": [2]},
    {"benchmark.slices": [{"name": "a"}, {"name": "a"}]},
    {"benchmark.slices": [{"name": "a"}, {"name": "b"}]},
    {"benchmark.prompts": {"configMap": "a", "volume": "/b"}},
    {"benchmark.prompts": {"configMap": "a"}},
    {"rollout.steps": [{"weightPercent": 50}, {"weightPercent": 25}]},
    {"rollout.steps": [{"weightPercent": 25}, {"weightPercent": 25}]},
    {"guardrails": {}, "speculation": proposer(Method.MEDUSA)},
    {"guardrails": {}, "speculation": {"candidates": [proposer(Method.MEDUSA)]}},
    {"capacity.maxExtraReplicas": 0, "rollout.maxUnavailable": 0},
    {"capacity.maxExtraReplicas": 0, "rollout.maxUnavailable": 1},
    {"template.multiNode": {"size": 2}},
    {"template.multiNode": {"size": 2}, "engine.tensorParallelSize": 3, "engine.pipelineParallelSize": 4},
    {"template.multiNode": {"size": 4}, "engine.tensorParallelSize": 3, "engine.dataParallelSize": 2},
    {"speculation": {}},
    {"speculation": {"candidates": []}},
    {"speculation": {"candidates": [proposer(Method.NGRAM), proposer(Method.EAGLE)]}},
    {"speculation": {"method": "ngram", "numSpeculativeTokens": 2, "candidates": [proposer(Method.NGRAM)]}},
    *({"speculation": proposer(method)} for method in Method),
    *({"speculation": {"method": str(method)}} for method in Method),
    *({"speculation": {**PROPOSERS[method], "method": str(method), "draft": {"model": "/m"}}} for method in Method),
    *(
        {"speculation": {**proposer(method), "ngram": {"promptLookupMin": 5, "promptLookupMax": 3}}}
        for method in Method
    ),
    *({"speculation": {**proposer(method), "ngram": {"promptLookupMax": 3}}} for method in Method),
    *({"speculation": {**proposer(method), "suffix": {"maxTreeDepth": 4}}} for method in Method),
    *({"speculation": {**proposer(method), "dspark": {"draftTopk": 4}}} for method in Method),
    *({"speculation": {**proposer(method), "tokensPerBatchSize": SCHEDULE}} for method in Method),
    {"speculation": {**proposer(Method.NGRAM), "tokensPerBatchSize": []}},
    {"speculation": {**proposer(Method.NGRAM), "tokensPerBatchSize": SCHEDULE[1:]}},
    {"speculation": {**proposer(Method.NGRAM), "tokensPerBatchSize": [{**SCHEDULE[0], "minBatchSize": 9}]}},
    {"speculation": {**proposer(Method.NGRAM), "numSpeculativeTokensRange": {"min": 1, "max": 3}}},
    {"speculation": {"method": "ngram", "numSpeculativeTokensRange": {"min": 4, "max": 3}}},
    {"speculation": {"method": "ngram", "numSpeculativeTokensRange": {"min": 1, "max": 9}}},
]


def expected(rule: str, value: Any) -> Any:
    context = reference.Context()
    context.add_variable("self", value)
    context.add_function("isSorted", lambda items: items == sorted(items))
    try:
        return reference.evaluate(rule, context)
    except Exception as error:  # an error of the reference is compared as such
        return type(error)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_the_crd_can_be_read(rule: str) -> None:
    compile_rule(rule)


@pytest.mark.parametrize("defaults", [True, False], ids=["with-defaults", "as-written"])
def test_the_evaluator_agrees_with_the_reference_on_every_rule_and_object(defaults: bool) -> None:
    seen: set[tuple[str, bool]] = set()
    for changes in CHANGES:
        raw = deepcopy(VALID)
        for path, value in changes.items():
            put(raw, path, value)
        wire = DeploymentSpec.model_validate(raw).to_wire() if defaults else raw
        for model, value in values_below(DeploymentSpec, wire):
            for entry in rules_of(model):
                rule, wanted = str(entry["rule"]), expected(str(entry["rule"]), value)
                if isinstance(wanted, bool):
                    assert holds(rule, value) is wanted, (rule, value)
                    seen.add((rule, wanted))
                else:
                    with pytest.raises(CelError):
                        holds(rule, value)
    own = {str(entry["rule"]) for model in models_below(DeploymentSpec).values() for entry in rules_of(model)}
    assert {(rule, result) for rule in own for result in (True, False)} - seen == set()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("self.a.matches('x')", "matches() with 1 arguments is not supported"),
        ("self.a + 1 == 2", "cannot read"),
        ("self.a == 1 self.b", "unexpected 'self'"),
        ("(self.a", "expected )"),
        ("self.all(x", "expected ,"),
        ("self.a", "not a boolean"),
        ("self.absent == 1", "no such field absent"),
        ("has(self.absent.deeper)", "no such field absent"),
    ],
)
def test_a_rule_that_cannot_be_evaluated_is_an_error_and_never_true(rule: str, words: str) -> None:
    with pytest.raises(CelError, match=words.replace("(", r"\(").replace(")", r"\)")):
        holds(rule, {"a": 1})


def test_admission_reports_the_path_of_the_violated_rule() -> None:
    _, findings = read_spec(raw_spec(None, {"speculation": {"candidates": [{"method": "eagle"}]}}))
    assert {one.field_path for one in findings} == {
        "spec.speculation.candidates[0].draft",
        "spec.speculation.candidates[0].numSpeculativeTokens",
    }


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"replicas": "2"}, "spec.replicas", "'2'"),
        ({"replicas": True}, "spec.replicas", "True"),
        ({"model": {"name": "x", "max_model_len": 5}}, "spec.model.max_model_len", "unknown field"),
        ({"engine.image": None}, "spec.engine.image", "missing"),
        ({"speculation": {"method": "nosuch"}}, "spec.speculation.method", "no vLLM method is called 'nosuch'"),
        ({"speculation": {"method": "mlp_speculator"}}, "spec.speculation.method", "no MLP speculator"),
        ({"speculation": {"method": "deepseek_mtp"}}, "spec.speculation.method", "legacy name"),
        ({"speculation": {"method": "extract_hidden_states"}}, "spec.speculation.method", "exports data"),
        (
            {"speculation": {"candidates": [{"method": "custom_class"}]}},
            "spec.speculation.candidates[0].method",
            "Python",
        ),
        (
            {"speculation": {**proposer("eagle"), "rejectionSampling": "synthetic"}},
            "spec.speculation.rejectionSampling",
            "synthetic",
        ),
    ],
)
def test_the_schema_is_as_strict_as_the_api_server(changes: dict[str, Any], path: str, words: str) -> None:
    spec, findings = read_spec(raw_spec(None, changes))
    assert spec is None
    (found,) = [one for one in findings if one.field_path == path]
    assert words in found.message
