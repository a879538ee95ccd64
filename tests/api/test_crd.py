from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field
from specfleet.api import crd, reference
from specfleet.api.base import ApiModel, StatusModel, cel, validations
from specfleet.api.status import ArmRole
from specfleet.api.structural import lint, walk

ROOT = Path(__file__).parents[2]


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return crd.structural_schema(model)


class _Inner(ApiModel):
    """Inner."""

    ratio: float = Field(gt=0, lt=1)


class _Everything(ApiModel):
    """Each spelling of pydantic that has no structural form."""

    inner: _Inner | None = Field(None, description="Described here.")
    only: Annotated[str, Field(json_schema_extra={"const": "a"})] = "a"
    anything: dict[str, Any] = Field(default_factory=dict)
    words: dict[str, str] = Field(default_factory=dict)
    kept: int = Field(1, json_schema_extra={"x-specfleet-keep-default": True})
    stripped: int = 7
    raw: Annotated[list[Any], Field(json_schema_extra={"x-specfleet-raw-items": True})] = Field(default_factory=list)


def test_every_pydantic_spelling_gets_a_structural_one() -> None:
    fields = _schema(_Everything)["properties"]
    assert fields["inner"]["description"] == "Described here."
    assert fields["inner"]["properties"]["ratio"] == {
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 1,
        "exclusiveMaximum": True,
    }
    assert fields["only"] == {"type": "string", "enum": ["a"]}
    assert fields["anything"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert fields["words"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert fields["raw"]["items"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert lint(_schema(_Everything)) == []


def test_defaults_are_stripped_because_they_rewrite_objects_except_where_the_api_server_reads_the_field() -> None:
    fields = _schema(_Everything)["properties"]
    assert "default" not in fields["stripped"]
    assert fields["kept"]["default"] == 1
    spec = crd.crds()["specfleet.dev_speculativedeployments.yaml"]["spec"]["versions"][0]
    kept = {path for path, node in walk(spec["schema"]["openAPIV3Schema"]) if "default" in node}
    assert kept == {spec["subresources"]["scale"]["specReplicasPath"]}


def test_a_union_of_types_is_refused_instead_of_guessed() -> None:
    class Union(ApiModel):
        both: int | str

    with pytest.raises(ValueError, match="union of 2 types"):
        _schema(Union)


@pytest.mark.parametrize("name", crd.crds())
def test_both_crds_are_structural(name: str) -> None:
    schema = crd.crds()[name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert lint(schema) == []


def test_the_committed_crds_and_reference_are_what_the_models_say() -> None:
    assert crd.differences(ROOT / "crds") == []
    assert (ROOT / "docs" / "reference" / "api.md").read_text() == reference.reference()


def test_check_names_the_file_that_was_edited_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert crd.main(["write", str(tmp_path)]) == 0
    victim = sorted(tmp_path.iterdir())[0]
    victim.write_text(victim.read_text().replace("string", "integer", 1))
    assert crd.main(["check", str(tmp_path)]) == 1
    assert victim.name in capsys.readouterr().err


def test_a_map_by_arm_has_the_arms_as_its_fields_so_that_the_api_server_takes_no_other() -> None:
    (manifest,) = (one for name, one in crd.crds().items() if "benchmarks" in name)
    nodes = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["nodes"]
    assert list(nodes["properties"]) == [role.value for role in ArmRole]
    assert {one["type"] for one in nodes["properties"].values()} == {"string"}
    assert "additionalProperties" not in nodes


def test_every_field_of_both_crds_is_described() -> None:
    for name, manifest in crd.crds().items():
        top = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        bare = [path for part in ("spec", "status") if part in top for path in _undescribed(top[part], part)]
        assert not bare, f"{name}: give these fields a description: {bare}"


def _undescribed(schema: dict[str, Any], path: str) -> list[str]:
    found = []
    for name, below in schema.get("properties", {}).items():
        found += [] if below.get("description") else [f"{path}.{name}"]
        found += _undescribed(below, f"{path}.{name}") + _undescribed(below.get("items", {}), f"{path}.{name}[]")
    return found


def test_every_validation_message_says_what_to_do_without_naming_cel() -> None:
    for manifest in crd.crds().values():
        for path, node in walk(manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]):
            for entry in node.get("x-kubernetes-validations", []):
                assert len(entry["message"]) > 10, path
                assert "self." not in entry["message"], path


@pytest.mark.parametrize(
    ("rule", "finding"),
    [
        ("self.optional > 1", "can be absent"),
        ("self.missing > 1", "does not exist"),
        ("!has(self.optional) || self.optional > 1", None),
        ("self.required > 1", None),
        ("!has(self.optional) || self.required > self.optional", None),
    ],
)
def test_a_rule_may_read_only_fields_that_are_there(rule: str, finding: str | None) -> None:
    class Ruled(ApiModel):
        model_config = ConfigDict(json_schema_extra=validations(cel(rule, "a message for the user")))
        required: int
        optional: int | None = None

    found = lint(_schema(Ruled))
    assert (found == []) if finding is None else (finding in found[0])


@pytest.mark.parametrize(
    ("node", "finding"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "#/x"}}}, "$ref is not allowed"),
        ({"type": "object", "properties": {"a": {"description": "no type"}}}, "type is missing"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "an array needs items"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "loses everything"),
        ({"type": "object", "properties": {"a": {"type": "integer", "exclusiveMinimum": 0}}}, "boolean form"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]}, "required field b"),
        ({"type": "object", "properties": {"a": {"type": "string", "example": "x"}}}, "example is not a keyword"),
    ],
)
def test_the_lint_finds_what_the_api_server_would_refuse_or_drop(node: dict[str, Any], finding: str) -> None:
    assert any(finding in line for line in lint(node)), lint(node)


def test_conditions_are_merged_by_type_so_that_two_writers_do_not_overwrite_each_other() -> None:
    schema = crd.crds()["specfleet.dev_speculativedeployments.yaml"]["spec"]["versions"][0]["schema"]
    conditions = schema["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_a_status_written_by_a_newer_operator_can_be_read_after_a_downgrade() -> None:
    class Old(StatusModel):
        known: int = 0

    assert Old.model_validate({"known": 1, "addedLater": True}).known == 1


def test_the_rendered_yaml_reads_back_as_the_manifest() -> None:
    for manifest in crd.crds().values():
        assert yaml.safe_load(crd.render(manifest)) == manifest
