"""A ConfigMap of prompts that cannot be measured with is refused, and never replaced by other prompts."""

from collections.abc import Mapping

import pytest
from specfleet.benchmark.plan import PROMPTS_FILE
from specfleet.controller.prompt_source import FIELD, prompt_findings
from specfleet.controller.wanted import WantedArms
from specfleet.engine.findings import Finding, Severity

from tests.controller.objects import deployment

GOOD = '{"prompt": "one\u2028and the same", "slice": "chat"}\n\n{"prompt": "two"}\n'


def found(data: Mapping[str, str] | None, why: str | None = None) -> list[Finding]:
    owner = deployment(benchmark={"prompts": {"configMap": "mine"}})
    maps = {} if data is None else {"mine": data}
    return prompt_findings(owner.spec, maps, {} if why is None else {"mine": why})


@pytest.mark.parametrize(
    ("data", "reason", "said"),
    [
        ({PROMPTS_FILE: GOOD}, None, ""),
        ({PROMPTS_FILE: GOOD, "notes": "anything"}, None, ""),
        ({"requests.jsonl": GOOD}, "PromptsUnusable", "has no key prompts.jsonl; it has requests.jsonl"),
        ({}, "PromptsUnusable", "it has no key at all"),
        ({PROMPTS_FILE: "\n"}, "PromptsUnusable", "has no prompts"),
        ({PROMPTS_FILE: GOOD + "{not json}"}, "PromptsUnusable", "ConfigMap mine line 4 is not"),
        ({PROMPTS_FILE: '["a list"]'}, "PromptsUnusable", "line 1 is not"),
        ({PROMPTS_FILE: '{"text": "no prompt"}'}, "PromptsUnusable", "line 1 is not"),
        ({PROMPTS_FILE: '{"prompt": "' + "x" * 1_000_000 + '"}'}, "PromptsUnusable", "has 1000014 bytes; beside"),
    ],
    ids=["good", "other keys beside", "another key", "empty", "no line", "no JSON", "a list", "no prompt", "too large"],
)
def test_what_a_config_map_of_prompts_has_to_be(data: Mapping[str, str], reason: str | None, said: str) -> None:
    findings = found(data)
    assert [one.reason for one in findings] == ([] if reason is None else [reason])
    assert all(said in one.message and one.field_path == FIELD and one.remedy for one in findings)


def test_one_that_is_away_says_so_and_one_that_nobody_looked_for_is_not_judged() -> None:
    assert [one.reason for one in found(None, "it is not there")] == ["ConfigMapMissing"]
    assert found(None) == []


def test_no_proposer_is_measured_with_them_and_the_plain_arm_serves() -> None:
    owner = deployment(benchmark={"prompts": {"configMap": "mine"}})
    wanted = WantedArms(owner.spec, {"mine": {"wrong": GOOD}})
    assert all(arm.refusals[-1].reason == "PromptsUnusable" for arm in wanted.proposers)
    assert wanted.proposers
    assert not [one for one in wanted.baseline.refusals if one.severity is Severity.REFUSE]
