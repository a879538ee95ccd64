"""status.preflight: what a look at the models' files said before a GPU was taken."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from specfleet.api.base import StatusModel


class PreflightOutcome(StrEnum):
    """What became of a preflight. Only Refused keeps a proposer from starting: no data is no verdict."""

    PASSED = "Passed"
    REFUSED = "Refused"
    NOT_CHECKED = "NotChecked"


class PreflightFinding(StatusModel):
    """One thing that the files say."""

    rule: str = Field(max_length=128, description="Engine rule; docs/reference/engine-rules.md lists them.")
    severity: str = Field(description="refuse or warn.", max_length=16)
    field_path: str = Field(max_length=256, description="Field of the spec that it is about.")
    message: str = Field(max_length=2048, description="What is wrong.")
    remedy: str = Field("", max_length=1024, description="What to do instead.")
    tokens: int | None = Field(None, description="Which proposer of a numSpeculativeTokensRange; absent: all of them.")


class PreflightStatus(StatusModel):
    """The last preflight; `outcome` is absent while its Job runs."""

    id: str = Field(max_length=16, description="Part of the name of its Job, so that it is never run twice.")
    key: str = Field(max_length=64, description="Hash of what is compared, and where; another one is looked at anew.")
    started: datetime = Field(description="When its Job was asked for.")
    outcome: PreflightOutcome | None = None
    message: str = Field("", max_length=2048, description="The outcome in words.")
    findings: list[PreflightFinding] = Field(
        default_factory=list, max_length=64, description="What the models' own files show."
    )
