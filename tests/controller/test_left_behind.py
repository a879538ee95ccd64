"""What stays in the way for long: it keeps nothing else from being written, and is told once."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from specfleet.alerts.metrics import OperatorMetrics
from specfleet.api import names
from specfleet.api.base import API_VERSION, RawObject
from specfleet.api.deployment import KIND
from specfleet.api.status import Phase
from specfleet.controller.failures import Failures
from specfleet.kube import kinds
from specfleet.kube.aio import AioKubeApi
from specfleet.kube.port import ConflictError, InvalidError, UnavailableError

from tests.controller.test_reconcile import Operator, Stage, in_phase, live, on_stage

pytestmark = pytest.mark.integration
__all__ = ["on_stage"]

FINALIZER = "example.org/a-controller-that-is-gone"


def test_a_child_of_a_namesake_that_never_goes_does_not_keep_the_arms_from_being_made(
    on_stage: Callable[..., None],
) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        owner = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": "llama",
            "uid": "5b0f0d2e-0000-4000-8000-000000000000",
        }
        left = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "namespace": stage.key[0],
                "name": names.service("llama"),
                "finalizers": [FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": {"selector": {"app": "old"}, "ports": [{"port": 80}]},
        }
        await stage.api.create(left)
        operator = await Operator.start(stage)
        await live(operator, in_phase(Phase.BASELINE))
        with pytest.raises(ConflictError, match="left from an earlier"):
            await operator.reconciler.reconcile(stage.key)
        await operator.stop()
        current = await stage.api.get(kinds.SERVICE, stage.key[0], names.service("llama"))
        del current["metadata"]["finalizers"]
        await stage.api.replace(current)

    on_stage(work)


class Refusing:
    """An API client that cannot write Services, as when an admission webhook is away."""

    def __init__(self, api: AioKubeApi) -> None:
        self._api = api
        self.away = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def apply(self, manifest: RawObject) -> RawObject:
        if self.away and manifest["kind"] == "Service":
            raise UnavailableError("PATCH services: 500: failed calling webhook", 500)
        return await self._api.apply(manifest)


def test_a_failure_that_lasts_is_written_once_and_taken_back_when_it_is_over(on_stage: Callable[..., None]) -> None:
    async def work(stage: Stage) -> None:
        await stage.begin()
        operator = await Operator.start(stage)
        refusing: Any = Refusing(stage.api)
        operator.reconciler._api = refusing
        lease: Any = operator.reconciler._lease
        failures = Failures(stage.api, operator.fleet, lease, OperatorMetrics(), stage.now)

        async def turn() -> None:
            try:
                await operator.turn()
            except UnavailableError as error:
                await failures.happened(stage.key, type(error).__name__, error.message)
            else:
                failures.over(stage.key)

        async def stalled() -> str:
            conditions = (await stage.body())["status"]["conditions"]
            return str(next(one["reason"] for one in conditions if one["type"] == "Stalled"))

        for _ in range(5):
            await turn()
        assert await stalled() == "OperatorError"
        before = (await stage.body())["metadata"]["resourceVersion"]
        for _ in range(5):
            await turn()
        assert (await stage.body())["metadata"]["resourceVersion"] == before, "each own write would wake the next try"
        refusing.away = False
        await turn()
        await turn()
        assert await stalled() == "Progressing"
        await operator.stop()

    on_stage(work)


def test_a_refusal_whose_words_change_with_every_try_is_told_once(on_stage: Callable[..., None]) -> None:
    class Refused(Refusing):
        tries = 0

        async def apply(self, manifest: RawObject) -> RawObject:
            if manifest["kind"] == "Service":
                self.tries += 1
                raise InvalidError(f"PATCH services: 422: denied, request {uuid.uuid4()} at try {self.tries}", 422)
            return await self._api.apply(manifest)

    async def work(stage: Stage) -> None:
        await stage.begin()
        operator = await Operator.start(stage)
        refusing: Any = Refused(stage.api)
        operator.reconciler._api = refusing
        for _ in range(5):
            await operator.turn()
        before = await stage.body()
        assert any("denied" in one for one in before["status"]["warnings"])
        for _ in range(5):
            await operator.turn()
        assert (await stage.body())["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        await operator.stop()

    on_stage(work)
