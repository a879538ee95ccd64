"""What no check has looked at, said aloud: an accepted spec is not yet a proven one."""

from specfleet.api.deployment import DeploymentSpec
from specfleet.api.speculation import Method, Proposer
from specfleet.engine.cluster_parts import CLUSTER_PARTS
from specfleet.engine.rules.case import Case
from specfleet.engine.serve_flags import LISTED, meant, unknown_flags


def not_checked(spec: DeploymentSpec, directories_read: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """What cannot be seen from the spec; `directories_read` holds the models whose config.json was compared."""
    proposers = spec.speculation.proposers() if spec.speculation else ()
    notes = ["whether the weights fit the GPUs' memory"]
    models = [spec.model.name, *(one.draft.model for one in proposers if one.draft is not None)]
    unread = [name for name in dict.fromkeys(models) if name not in directories_read]
    if unread:
        notes.append(f"config.json of {', '.join(unread)} (existence, vocabulary, layers: use --models DIR)")
    notes.extend(note for one in proposers for note in _of_proposer(one))
    template = spec.template
    if any(
        name in str(template.volumes + spec.engine.env) for name in ("configMap", "secret", "persistentVolumeClaim")
    ):
        notes.append("whether the referenced ConfigMaps, Secrets and volume claims exist")
    if template.multi_node is not None:
        notes.append("whether the nodes of one engine reach each other fast enough, and all mount the same volumes")
    wanted = [part.name for part in CLUSTER_PARTS if part.asked(spec)]
    if spec.traffic.parent_refs:
        wanted.append("Gateway API")
    if wanted:
        notes.append(f"whether the cluster has {', '.join(wanted)}")
    notes.extend(_flags(spec))
    if "@sha256:" not in spec.engine.image:
        notes.append("whether the image's tag still holds the vLLM version that it names")
    return tuple(dict.fromkeys(notes))


def _flags(spec: DeploymentSpec) -> list[str]:
    """Flags that the release with a list does not have; of another release or an own build nobody here can tell."""
    case = Case(spec)
    if case.version is not None and case.version.has(LISTED, LISTED) and not case.own_build:
        return []
    unknown = [
        f"{flag.name} (did you mean {better}?)" if (better := meant(flag.name)) is not None else flag.name
        for flag in unknown_flags(case.flags)
    ]
    engine = "an engine of your own" if case.own_build else f"vLLM {case.version or 'of an unknown version'}"
    return [f"whether {engine} knows {', '.join(unknown)}; vLLM {LISTED} does not"] if unknown else []


def _of_proposer(proposer: Proposer) -> list[str]:
    notes = []
    if proposer.method is Method.SUFFIX:
        notes.append("whether the image holds arctic-inference")
    if proposer.draft is not None:
        notes.append("whether the draft was trained for this target (a wrong one runs with 0 % acceptance)")
    if proposer.extra:
        notes.append("the keys under extra")
    return notes
