"""Lint results as text, JSON and SARIF 2.1.0."""

import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import quote

from specfleet.api.base import RawObject
from specfleet.cli.linting import LintResult
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.rules import PROPOSER_RULES, SPEC_RULES

INFORMATION_URI = "https://specfleet.dev/docs/reference/engine-rules"
_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.REFUSE: "error", Severity.WARN: "warning"}


def as_text(results: Sequence[LintResult]) -> str:
    """One line per finding, one per object for what was not checked, and a summary."""
    lines = []
    for result in results:
        for line, one in result.findings:
            lines.append(f"{result.file}:{line}: {one.severity} [{one.rule_id}] {one.sentence()} ({one.source})")
        lines.append(f"{result.file}: {result.name}: not checked here: {'; '.join(result.not_checked)}")
    refused = sum(result.refused for result in results)
    warned = sum(result.warned and not result.refused for result in results)
    total = f"{len(results)} object{'s' if len(results) != 1 else ''}"
    lines.append(
        f"{total}: {refused} refused, {warned} accepted with warnings, {len(results) - refused - warned} clean"
    )
    return "\n".join(lines)


def as_json(results: Sequence[LintResult]) -> str:
    """A list of objects: file, name, refused, findings (with line) and notChecked."""
    return json.dumps([_object(result) for result in results], indent=2)


def as_sarif(results: Sequence[LintResult]) -> str:
    """SARIF 2.1.0 for code scanning: one result per finding; what was not checked becomes a notification."""
    tool = {"name": "specfleet", "informationUri": INFORMATION_URI, "rules": _sarif_rules(results), **_tool_version()}
    run = {
        "tool": {"driver": tool},
        "results": [_sarif_result(result, line, one) for result in results for line, one in result.findings],
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(results)}],
    }
    return json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


FORMATS = {"text": as_text, "json": as_json, "sarif": as_sarif}


def _object(result: LintResult) -> RawObject:
    findings = [
        {
            "rule": one.rule_id,
            "severity": one.severity.value,
            "line": line,
            "path": one.field_path,
            "message": one.message,
            "remedy": one.remedy,
            "source": one.source,
        }
        for line, one in result.findings
    ]
    return {
        "file": result.file,
        "name": result.name,
        "refused": result.refused,
        "findings": findings,
        "notChecked": list(result.not_checked),
    }


def _sarif_rules(results: Sequence[LintResult]) -> list[RawObject]:
    why = {rule.id: rule.why for rule in SPEC_RULES} | {rule.id: rule.why for rule in PROPOSER_RULES}
    found = sorted({one.rule_id for result in results for _, one in result.findings})
    return [
        {
            "id": rule,
            "shortDescription": {"text": why.get(rule, rule)},
            "helpUri": f"{INFORMATION_URI}#{rule.lower()}",
        }
        for rule in found
    ]


def _sarif_result(result: LintResult, line: int, one: Finding) -> RawObject:
    place = {"artifactLocation": {"uri": quote(result.file)}, "region": {"startLine": line}}
    logical = {"fullyQualifiedName": f"{result.name}/{one.field_path}"}
    return {
        "ruleId": one.rule_id,
        "level": _LEVELS[one.severity],
        "message": {"text": one.sentence()},
        "locations": [{"physicalLocation": place, "logicalLocations": [logical]}],
    }


def _notifications(results: Sequence[LintResult]) -> list[RawObject]:
    return [
        {"level": "note", "message": {"text": f"{result.file}: {result.name}: not checked here: {note}"}}
        for result in results
        for note in result.not_checked
    ]


def _tool_version() -> RawObject:
    try:
        return {"version": version("specfleet")}
    except PackageNotFoundError:
        return {}
