"""Compares a target's and its drafts' config.json before an engine starts. Standard library only: runs as
`python3 -c` in a pod without a GPU that mounts the engine's volumes, and inside `lint --models`.

Input (environment SPECFLEET_PREFLIGHT, JSON): {"target": {...}, "drafts": [{...}]}, see specfleet.engine.preflight.
Output: a JSON list of findings on stdout and in the termination message. Exit 1 when one of them refuses, else 0.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

REFUSE, WARN = "refuse", "warn"
MESSAGE_LIMIT_BYTES = 4000
Json = dict[str, Any]
Found = Iterator[Json]


class Pair(NamedTuple):
    """A target and a draft: the plan's entries and both config.json (a draft without one has the target's)."""

    target: Json
    config: Json
    draft: Json
    own: Json

    def path(self, field: str) -> str:
        """Field path below the proposer."""
        return f"{self.draft['field']}.{field}"


def inspect(plan: Json) -> list[Json]:
    """Findings for a plan: list of {"rule", "severity", "path", "message", "remedy"}."""
    target = plan["target"]
    findings: list[Json] = []
    config = _read(target, "spec.model.name", "ModelMissing", findings)
    if config is not None:
        findings.extend(_target(target, config))
    for draft in plan["drafts"]:
        own = config
        if draft.get("directory"):
            own = _read(draft, f"{draft['field']}.draft.model", "DraftMissing", findings)
        if own is not None and config is not None:
            pair = Pair(target, config, draft, own)
            findings.extend(_of_tokens(one, draft) for check in CHECKS for one in check(pair))
    return findings


def _of_tokens(finding: Json, draft: Json) -> Json:
    """One field may stand for several proposers, one per number of tokens: says which of them is meant."""
    return {**finding, "tokens": draft.get("tokens")} if finding["path"].endswith(".numSpeculativeTokens") else finding


def _read(what: Json, path: str, rule: str, findings: list[Json]) -> Json | None:
    """config.json of a directory; None, with a finding, when the directory should be there and cannot be read."""
    if not what.get("directory"):
        return None
    directory = Path(what["directory"])
    try:
        if directory.is_file():
            return None  # One file that holds everything (GGUF): there is no config.json to look at.
        return _parse(directory, what, path, rule, findings)
    except PermissionError as error:
        # Another user than the engine's runs this: what it may not read, the engine perhaps may.
        remedy = "Let everybody read it, or allow its group in template.podSecurityContext"
        findings.append(_finding("ConfigNotReadable", WARN, path, f"not compared: {error}", remedy))
        return None


def _parse(directory: Path, what: Json, path: str, rule: str, findings: list[Json]) -> Json | None:
    file = next((directory / name for name in ("config.json", "params.json") if (directory / name).is_file()), None)
    if file is None:
        state = "has no config.json" if directory.is_dir() else "does not exist"
        remedy = "Correct the path, or put the files on the volume that the engine mounts there"
        findings.append(_finding(rule, REFUSE, path, f"{what['model']} {state}", remedy))
        return None
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        problem = "" if isinstance(value, dict) else "it is not a JSON object"
    except PermissionError:
        raise
    except (OSError, ValueError) as error:
        value, problem = None, str(error)
    if problem:
        findings.append(_finding("ConfigUnreadable", REFUSE, path, f"{file}: {problem}", "Repair the file"))
        return None
    return dict(value)


def _target(target: Json, config: Json) -> Found:
    yield from _architecture(target, config)
    heads, ranks = _value(config, "num_attention_heads"), target.get("tensorParallelSize", 1)
    if heads and heads % ranks:
        message = f"{heads} attention heads do not divide over {ranks} ranks"
        yield _finding("HeadsDoNotDivide", REFUSE, "spec.engine.tensorParallelSize", message, "Choose a divisor")
    longest, asked = _value(config, "max_position_embeddings"), target.get("maxModelLen")
    if longest and asked and asked > longest and not _value(config, "rope_scaling"):
        message = f"{asked} is above the model's {longest} positions"
        yield _finding("ContextTooLong", WARN, "spec.model.maxModelLen", message, "Lower it, or configure rope scaling")


def _architecture(target: Json, config: Json) -> Found:
    """Held against the list of the engine whose image this runs in; where there is none, nothing is said."""
    if not (Path(target["directory"]) / "config.json").is_file():
        return  # Mistral's params.json has no such key.
    names = [str(name) for name in config.get("architectures") or []]
    if not names and not _value(config, "model_type"):
        message = f"config.json of {target['model']} names neither architectures nor a model_type"
        remedy = "Use the config.json that came with the weights"
        yield _finding("ArchitectureMissing", REFUSE, "spec.model.name", message, remedy)
        return
    known = _registry()
    unknown = [name for name in names if known and f'"{name}"' not in known]
    if names and len(unknown) == len(names):
        message = f"vLLM in this image lists no architecture {', '.join(unknown)}"
        remedy = "Use a release that has it; it may run through Transformers or a plug-in of the image, more slowly"
        yield _finding("ArchitectureUnknown", WARN, "spec.model.name", message, remedy)


def _registry() -> str:
    """Source text of vLLM's model registry, found without importing vLLM (which wants a device); "" where it is not."""
    try:
        found = importlib.util.find_spec("vllm")
        places = list(found.submodule_search_locations or []) if found is not None else []
        texts = [Path(place) / "model_executor" / "models" / "registry.py" for place in places]
        return "".join(one.read_text(encoding="utf-8") for one in texts if one.is_file())
    except (OSError, ValueError, ImportError):
        return ""


def _vocabulary(pair: Pair) -> Found:
    if pair.draft["method"] != "draft_model" or pair.draft.get("heterogeneousVocabulary"):
        return
    ours, theirs = _value(pair.config, "vocab_size"), _value(pair.own, "vocab_size")
    if ours and theirs and ours != theirs:
        message = (
            f"the target {pair.target['model']} has a vocabulary of {ours} tokens, "
            f"the draft {pair.draft['model']} one of {theirs}"
        )
        remedy = "Use a draft of the same vocabulary, or set draft.heterogeneousVocabulary (vLLM 0.25+)"
        yield _finding("VocabularyDiffers", REFUSE, pair.path("draft.model"), message, remedy)


def _tokenizer(pair: Pair) -> Found:
    """vLLM compares sizes only: another mapping of the same size drafts nonsense and is not an error."""
    if pair.draft["method"] != "draft_model" or pair.draft.get("heterogeneousVocabulary"):
        return
    ours, theirs = _tokens(pair.target["directory"]), _tokens(pair.draft.get("directory"))
    if ours is not None and theirs is not None and ours != theirs:
        message = f"{pair.draft['model']} maps tokens to other numbers than {pair.target['model']}"
        remedy = "Use a draft trained with the target's tokenizer; acceptance will be near zero otherwise"
        yield _finding("TokenizersDiffer", WARN, pair.path("draft.model"), message, remedy)


def _context(pair: Pair) -> Found:
    longest = _value(pair.own, "max_position_embeddings") if pair.draft.get("directory") else None
    served = pair.target.get("maxModelLen") or _value(pair.config, "max_position_embeddings")
    if not longest or pair.draft["method"] in ("eagle", "eagle3", "medusa", "mtp"):
        return
    asked = pair.draft.get("maxModelLen")
    if asked and asked > longest:
        message = f"{asked} is above the draft's {longest} positions"
        yield _finding("DraftContextTooLong", REFUSE, pair.path("draft.maxModelLen"), message, "Lower or remove it")
    elif served and longest < served:
        message = (
            f"the draft has {longest} positions, the target serves {served}: "
            "one longer request switches drafting off for its whole batch"
        )
        remedy = f"Lower model.maxModelLen to {longest}, or use a draft with a longer context"
        yield _finding("DraftContextShort", WARN, pair.path("draft.model"), message, remedy)


def _draft_heads(pair: Pair) -> Found:
    heads = _value(pair.own, "num_attention_heads")
    ranks = pair.draft.get("tensorParallelSize") or pair.target.get("tensorParallelSize", 1)
    if pair.draft.get("directory") and pair.draft["method"] != "medusa" and heads and heads % ranks:
        message = f"{heads} attention heads of the draft do not divide over {ranks} ranks"
        remedy = "Set draft.tensorParallelSize to 1 where the method allows it, or choose another size"
        yield _finding("DraftHeadsDoNotDivide", REFUSE, pair.path("draft.tensorParallelSize"), message, remedy)


def _eagle(pair: Pair) -> Found:
    if pair.draft["method"] not in ("eagle", "eagle3"):
        return
    remedy = "Use a head that was trained for this target"
    width = _value(pair.config, "hidden_size")
    expected = pair.own.get("target_hidden_size") or _value(pair.own, "hidden_size")
    if width and expected and width != expected:
        message = f"the head expects hidden states of {expected}, the target has {width}"
        yield _finding("HiddenSizeDiffers", WARN, pair.path("draft.model"), message, remedy)
    layers, key = _value(pair.config, "num_hidden_layers"), "eagle_aux_hidden_state_layer_ids"
    if pair.draft["method"] != "eagle3" or not layers:
        return
    named = pair.own.get(key) or (pair.own.get("eagle_config") or {}).get(key)
    chosen = list(named or (2, layers // 2, layers - 3))
    if len({layer for layer in chosen if 0 <= layer <= layers}) < len(chosen):
        message = (
            f"the head reads the layers {chosen}{'' if named else ' (the default)'} of a target with {layers}: "
            "the engine becomes ready and dies at the first request"
        )
        yield _finding("AuxiliaryLayersMissing", REFUSE, pair.path("draft.model"), message, remedy)


def _medusa(pair: Pair) -> Found:
    heads, tokens = pair.own.get("num_heads") or pair.own.get("medusa_num_heads"), pair.draft.get("tokens")
    if pair.draft["method"] == "medusa" and heads and tokens and heads != tokens:
        message = f"{tokens} tokens are asked for, the draft has {heads} heads"
        remedy = "Set numSpeculativeTokens to the number of heads"
        yield _finding("MedusaHeadsDiffer", WARN, pair.path("numSpeculativeTokens"), message, remedy)


def _prediction_layers(pair: Pair) -> Found:
    if pair.draft["method"] != "mtp":
        return
    if pair.config.get("model_type") == "deepseek_v41":
        message = "DeepSeek V4.1 has no MTP weights"
        yield _finding("ModelHasNoPredictionLayers", REFUSE, pair.path("method"), message, "Use the method dspark")
        return
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "n_predict")
    layers = next((value for name in names if (value := _value(pair.own, name))), None)
    tokens, path = pair.draft.get("tokens"), pair.path("numSpeculativeTokens")
    if not layers:
        message = f"the config of {pair.draft['model']} does not name any prediction layers"
        remedy = "Check that the checkpoint holds MTP weights"
        yield _finding("PredictionLayersUnknown", WARN, pair.path("method"), message, remedy)
    elif tokens and tokens > layers and tokens % layers:
        message = f"{tokens} is no multiple of the model's {layers} prediction layers"
        yield _finding("TokensDoNotDivide", REFUSE, path, message, "Use a multiple")
    elif tokens and tokens > layers:
        message = f"{tokens} tokens from {layers} prediction layers: layers are reused and acceptance falls"
        yield _finding("PredictionLayersReused", WARN, path, message, f"Let the benchmark compare it with {layers}")


def _parallel_drafting(pair: Pair) -> Found:
    """Drafting all positions at once needs a token that stands for the unknown ones."""
    if pair.draft["method"] != "dflash" and not pair.draft.get("parallelDrafting"):
        return
    names = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")
    known = (pair.own.get("dflash_config") or {}).get("mask_token_id") is not None
    if not known and all(pair.own.get(name) is None for name in names):
        message = f"the draft {pair.draft['model']} names no token for the positions that it drafts in parallel"
        remedy = "Use a draft that was trained for parallel drafting"
        yield _finding("ParallelDraftingTokenMissing", REFUSE, pair.path("draft.model"), message, remedy)


CHECKS = (_vocabulary, _tokenizer, _context, _draft_heads, _eagle, _medusa, _prediction_layers, _parallel_drafting)


def _tokens(directory: str | None) -> Json | None:
    """Token -> number of a tokenizer.json with a plain vocabulary, None where there is none."""
    try:
        content = json.loads((Path(directory or "") / "tokenizer.json").read_text(encoding="utf-8"))
        added = {one["content"]: one["id"] for one in content.get("added_tokens") or []}
        return {**content["model"]["vocab"], **added}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _value(config: Json, name: str) -> Any:
    """A key of the text model, which multimodal checkpoints nest."""
    for place in (config, config.get("text_config"), (config.get("thinker_config") or {}).get("text_config")):
        if isinstance(place, dict) and place.get(name) is not None:
            return place[name]
    return None


def _finding(rule: str, severity: str, path: str, message: str, remedy: str) -> Json:
    return {"rule": rule, "severity": severity, "path": path, "message": message, "remedy": remedy}


def main() -> int:
    """Reads the plan, prints the findings, returns the exit code."""
    findings = inspect(json.loads(os.environ["SPECFLEET_PREFLIGHT"]))
    print(json.dumps(findings))
    shown = sorted(findings, key=lambda one: bool(one["severity"] != REFUSE))
    while len(json.dumps(shown).encode()) > MESSAGE_LIMIT_BYTES:
        shown.pop()
    log = Path(os.environ.get("SPECFLEET_TERMINATION_LOG", "/dev/termination-log"))
    if log.exists():
        log.write_text(json.dumps(shown), encoding="utf-8")
    return 1 if any(one["severity"] == REFUSE for one in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
