"""A changed engine is a new revision: it is measured against the one that serves; a worse one is kept out."""

from __future__ import annotations

from e2e.engine.second_version import VERSION as OLDER
from e2e.engine_cluster import acts
from e2e.engine_cluster.deployments import AT_THE_PEAK, OLDER_IMAGE, deep
from e2e.road.access import Access

ONE_AT_A_TIME = ["--enforce-eager", "--max-num-seqs", "1", "--disable-uvicorn-access-log"]
DECIDED_SECONDS = 1500.0


def test_an_argument_that_makes_the_engine_worse_is_kept_out(access: Access) -> None:
    with acts.on_real_stage(access, deep("change", None, AT_THE_PEAK)) as stage:
        stage.follow("it serves", lambda: stage.condition("Ready").get("status") == "True", 60)
        first = str(stage.status["stable"]["baseline"])
        acts.send_traffic(stage, long_streams=1)
        stage.stay(10)
        access.apply([deep("change", None, AT_THE_PEAK | {"engine": {"args": ONE_AT_A_TIME}})])
        stage.narrator.say("SPEC", "--max-num-seqs 16 becomes 1: eight users wait for each other")
        stage.follow("the revision is refused", lambda: stage.phase in ("RolledBack", "Held"), DECIDED_SECONDS)
        found = acts.end_traffic(stage)
        assert stage.phase == "RolledBack", stage.status["lastDecision"]["message"]
        assert stage.status["stable"]["baseline"] == first
        assert stage.condition("Stalled")["status"] == "True"
        assert not acts.faults(found)


def test_another_version_of_the_engine_proves_itself_and_takes_over(access: Access) -> None:
    older = AT_THE_PEAK | {"engine": {"image": OLDER_IMAGE, "version": OLDER}}
    with acts.on_real_stage(access, deep("upgrade", None, older)) as stage:
        first = str(stage.status["stable"]["baseline"])
        acts.send_traffic(stage, long_streams=1)
        stage.stay(10)
        access.apply([deep("upgrade", None, AT_THE_PEAK)])
        stage.narrator.say("SPEC", f"the engine's image goes from vLLM {OLDER} to 0.32.0")

        def decided() -> bool:
            adopted = (stage.status.get("stable") or {}).get("baseline") != first and stage.phase == "Baseline"
            return adopted or stage.phase in ("RolledBack", "Held")

        stage.follow("the revision is adopted or refused", decided, DECIDED_SECONDS)
        stage.stay(10)
        found = acts.end_traffic(stage)
        assert not acts.faults(found)
        assert stage.phase == "Baseline", stage.status["lastDecision"]["message"]
        last = found[-1].fingerprint
        assert last == stage.status["stable"]["baseline"] != first
