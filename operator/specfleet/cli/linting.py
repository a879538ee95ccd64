"""Lint of one object: admission, rules, and the models' own files where they can be read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specfleet.api.deployment import DeploymentSpec
from specfleet.cli.manifests import Manifest, Problem, object_problems
from specfleet.engine.admission import SCHEMA_RULE, object_admission, read_spec
from specfleet.engine.findings import Finding, Severity
from specfleet.engine.preflight import Locate, preflight_findings, preflight_plan
from specfleet.engine.rules import check
from specfleet.engine.unseen import not_checked

AskEngine = Callable[[DeploymentSpec], tuple[Finding, ...]]


@dataclass(frozen=True, slots=True)
class LintResult:
    """What lint says about one object."""

    file: str
    name: str
    findings: tuple[tuple[int, Finding], ...]
    """(line, finding), in the order of the rules."""
    not_checked: tuple[str, ...]

    @property
    def refused(self) -> bool:
        """Whether the object must not be applied."""
        return any(finding.severity is Severity.REFUSE for _, finding in self.findings)

    @property
    def warned(self) -> bool:
        """Whether there are warnings."""
        return any(finding.severity is Severity.WARN for _, finding in self.findings)


def lint(manifest: Manifest, locate: Locate | None = None, ask_engine: AskEngine | None = None) -> LintResult:
    """Everything that can be said offline. `locate` finds model directories, `ask_engine` asks an installed vLLM."""
    problems = [_finding(one) for one in object_problems(manifest)]
    spec, findings = read_spec(manifest.raw.get("spec"))
    listed = [*problems, *object_admission(manifest.raw), *findings]
    notes: tuple[str, ...] = ("the engine rules: the schema already refuses the object",)
    if spec is not None:
        listed.extend(check(spec))
        read: frozenset[str] = frozenset()
        if locate is not None:
            plan = preflight_plan(spec, locate)
            listed.extend(preflight_findings(plan) if plan else ())
            read = _read(spec, locate)
        if ask_engine is not None and not any(one.severity is Severity.REFUSE for one in listed):
            listed.extend(ask_engine(spec))
        notes = not_checked(spec, read)
    unique = dict.fromkeys(listed)
    return LintResult(
        manifest.file, manifest.name, tuple((manifest.line(one.field_path), one) for one in unique), notes
    )


def locate_below(folder: Path) -> Locate:
    """Finds models below a folder: by their whole path, by their last name, or as a Hugging Face cache.

    A path of the pod that lies nowhere below the folder is reported as missing; an unknown repository is not checked.
    """

    def locate(model: str, revision: str | None) -> str | None:
        cached = folder / f"models--{model.replace('/', '--')}" / "snapshots"
        commit = revision if revision and (cached / revision).is_dir() else _only_snapshot(cached)
        choices = [folder / model.lstrip("/"), folder / Path(model).name, *([cached / commit] if commit else [])]
        found = next((str(choice) for choice in choices if choice.is_dir()), None)
        return found or (str(choices[0]) if model.startswith("/") else None)

    return locate


def _only_snapshot(cached: Path) -> str | None:
    found = [path.name for path in cached.iterdir()] if cached.is_dir() else []
    return found[0] if len(found) == 1 else None


def _read(spec: DeploymentSpec, locate: Locate) -> frozenset[str]:
    proposers = spec.speculation.proposers() if spec.speculation else ()
    models = [(spec.model.name, spec.model.revision)]
    models += [(one.draft.model, one.draft.revision) for one in proposers if one.draft is not None]
    return frozenset(name for name, revision in models if locate(name, revision) is not None)


def _finding(one: Problem) -> Finding:
    return Finding(SCHEMA_RULE, Severity.REFUSE, one.path, SCHEMA_RULE, one.message, one.remedy, "the Kubernetes API")
