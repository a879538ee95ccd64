"""Another version of vLLM is a new revision: it is measured against the one that serves. A worse one is kept out;
then, if there is time for it, one as good proves itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.engine.second_version import VERSION as OLDER
from e2e.engine_cluster import acts
from e2e.engine_cluster.deployments import ARGS, AT_THE_PEAK, OLDER_IMAGE, VERSION, Change, deep
from e2e.engine_cluster.not_here import MORE, MORE_HINT
from e2e.road.access import Access
from e2e.scenarios.stage import Stage

ONE_AT_A_TIME = ["1" if one == "16" else one for one in ARGS]
DECIDED_SECONDS = 1500.0


WITH_OLDER: Change = {**AT_THE_PEAK, "engine": {"image": OLDER_IMAGE, "version": OLDER}}
WORSE: Change = {**AT_THE_PEAK, "engine": {"args": ONE_AT_A_TIME}}


@pytest.fixture(scope="module")
def changed(access: Access) -> Iterator[Stage]:
    """A deployment of the older version, without speculation."""
    with acts.on_real_stage(access, deep("change", None, WITH_OLDER)) as stage:
        stage.follow("it serves", lambda: stage.condition("Ready").get("status") == "True", 60)
        yield stage


def serving(stage: Stage) -> str:
    """Fingerprint of the plain arm that serves."""
    return str((stage.status.get("stable") or {}).get("baseline"))


def test_5_a_new_version_that_is_worse_is_kept_out(changed: Stage, access: Access) -> None:
    first = serving(changed)
    acts.send_traffic(changed, acts.FEW, long_streams=0)
    access.apply([deep("change", None, WORSE)])
    changed.narrator.say(
        "SPEC", f"vLLM {OLDER} to {VERSION}, and --max-num-seqs 16 to 1: eight users wait for each other"
    )
    changed.follow("the revision is refused", lambda: changed.phase in ("RolledBack", "Held"), DECIDED_SECONDS)
    found = acts.end_traffic(changed)
    assert changed.phase == "RolledBack", changed.status["lastDecision"]["message"]
    assert serving(changed) == first
    assert changed.condition("Stalled")["status"] == "True"
    assert not acts.faults(found)
    assert {one.fingerprint for one in found} == {first}


@pytest.mark.skipif(not MORE, reason=MORE_HINT)
def test_5_another_version_of_the_engine_proves_itself_and_takes_over(changed: Stage, access: Access) -> None:
    first = serving(changed)
    acts.send_traffic(changed, acts.FEW, long_streams=0)
    access.apply([deep("change", None, AT_THE_PEAK)])
    changed.narrator.say("SPEC", f"vLLM {OLDER} to {VERSION} with the arguments that it had")
    refused = changed.actions.count("RefuseRevision")

    def decided() -> bool:
        adopted = serving(changed) != first and changed.phase == "Baseline"
        return adopted or changed.phase == "Held" or changed.actions.count("RefuseRevision") > refused

    changed.follow("the revision meets users", lambda: "TryRevision" in changed.actions or decided(), DECIDED_SECONDS)
    # Two versions that are equally fast differ by less than the noise of a few requests.
    assert not acts.faults(acts.end_traffic(changed))
    acts.send_traffic(changed, long_streams=0)
    changed.follow("the revision is adopted or refused", decided, DECIDED_SECONDS)
    changed.stay(10)
    found = acts.end_traffic(changed)
    assert not acts.faults(found)
    assert changed.phase == "Baseline", changed.status["lastDecision"]["message"]
    assert found[-1].fingerprint == serving(changed) != first
