"""A field whose API the cluster does not serve: refused by condition, nothing is started, and taken up once it is."""

from collections.abc import Callable

import pytest
from specfleet.api.status import Phase
from specfleet.kube import kinds

from tests.controller.test_reconcile import Operator, Stage, in_phase, live, on_stage, settle

pytestmark = pytest.mark.integration
__all__ = ["on_stage"]


def test_a_queue_without_kueue_is_refused_until_kueue_is_there(on_stage: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin(template={"kueueQueueName": "gpus"})
        operator = await Operator.start(stage)
        operator.fleet.groups = await stage.api.groups()
        await settle(operator, 4)
        status = (await stage.body())["status"]
        said = {one["type"]: one for one in status["conditions"]}
        assert (said["Stalled"]["status"], said["Stalled"]["reason"]) == ("True", "KueueMissing")
        assert "spec.template.kueueQueueName" in said["Stalled"]["message"]
        assert "Install Kueue" in said["Stalled"]["message"]
        assert said["Ready"]["status"] == "False"
        assert await stage.children(kinds.DEPLOYMENT) == []
        operator.fleet.groups = operator.fleet.groups | {"kueue.x-k8s.io"}
        await live(operator, in_phase(Phase.BASELINE))
        (arm,) = await stage.children(kinds.DEPLOYMENT)
        assert arm["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
        await operator.stop()

    on_stage(work)
