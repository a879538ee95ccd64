"""The operator's own question to a pod, and what it makes of the answer."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from specfleet.api.model import EngineSpec
from specfleet.controller.probe import Prober, Question, judge_answer
from specfleet.decide.observation import Proof
from specfleet.resources.pods import base_url

from tests.controller.objects import KEY, NOW

ENGINE = EngineSpec(image="vllm/vllm-openai:v0.32.0")


def answer(**fields: Any) -> str:
    return json.dumps({"system_fingerprint": "f1", "choices": [{"text": "yes"}], **fields})


@pytest.mark.parametrize(
    ("version", "status", "text", "proof"),
    [
        ("0.32.0", 200, answer(), Proof.PROVEN),
        ("0.31.0", 200, answer(), Proof.CONTRADICTED),
        ("0.32.0", 200, answer(system_fingerprint="f2"), Proof.CONTRADICTED),
        ("0.32.0", 200, answer(system_fingerprint=None), Proof.CONTRADICTED),
        ("0.32.0", 200, answer(choices=[]), Proof.PENDING),
        ("0.32.0", 401, "unauthorized", Proof.PROVEN),
        ("0.32.0", 403, "forbidden", Proof.PROVEN),
        ("0.32.0", 500, "engine dead", Proof.PENDING),
        ("0.32.0", 404, "no such model", Proof.PENDING),
        ("0.32.0", 200, "<html>", Proof.PENDING),
        ("0.32.0", 200, "[]", Proof.PENDING),
        ("0.32.0", 200, "null", Proof.PENDING),
    ],
    ids=[
        "a completion with the expected fingerprint",
        "another engine version",
        "another fingerprint",
        "no fingerprint",
        "no choices",
        "an API key is asked for",
        "forbidden",
        "a server error",
        "a model that is not there yet",
        "not JSON",
        "a list",
        "nothing",
    ],
)
def test_what_an_answer_proves(version: str, status: int, text: str, proof: Proof) -> None:
    judged = judge_answer(ENGINE, "f1", version, status, text)
    assert judged.proof is proof
    assert judged.message or proof is Proof.PROVEN


@pytest.mark.parametrize(("ip", "url"), [("10.0.0.7", "http://10.0.0.7:8000"), ("fd00::5", "http://[fd00::5]:8000")])
def test_a_pod_is_asked_at_a_url_whatever_its_address_looks_like(ip: str, url: str) -> None:
    assert base_url(ip, 8000) == url
    assert urlsplit(base_url(ip, 8000)).hostname == ip


def test_a_pod_of_an_earlier_spec_is_not_held_to_the_present_engine_version() -> None:
    assert judge_answer(None, "f1", "0.31.0", 200, answer()).proof is Proof.PROVEN


class Engine:
    """A tiny engine on loopback that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.reply: Callable[[], web.Response] = lambda: web.json_response(json.loads(answer()))

    async def start(self) -> int:
        app = web.Application()
        app.router.add_get("/version", self.version)
        app.router.add_post("/v1/completions", self.complete)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        return int(self.runner.addresses[0][1])

    async def version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def complete(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        return self.reply()


def question(port: int, **changes: Any) -> Question:
    given: dict[str, Any] = {
        "key": KEY,
        "uid": "pod-1",
        "starts": 0,
        "ip": "127.0.0.1",
        "port": port,
        "model": "served-name",
        "fingerprint": "f1",
        "engine": ENGINE,
        "ready_since": NOW,
        **changes,
    }
    return Question(**given)


def with_engine(
    work: Callable[[Engine, int, Prober, asyncio.Event], Awaitable[None]],
    moments: Sequence[datetime] = (NOW - timedelta(seconds=10),),
) -> None:
    async def run() -> None:
        engine, woken = Engine(), asyncio.Event()
        port = await engine.start()
        prober = Prober(lambda key: woken.set(), lambda: moments[-1])
        try:
            await asyncio.wait_for(work(engine, port, prober, woken), timeout=20)
        finally:
            await prober.close()
            await engine.runner.cleanup()

    asyncio.run(run())


def test_a_pod_is_asked_once_in_the_background_and_the_reconcile_is_woken() -> None:
    async def work(engine: Engine, port: int, prober: Prober, woken: asyncio.Event) -> None:
        assert prober.answer(question(port)).proof is Proof.PENDING
        prober.answer(question(port))
        await woken.wait()
        answered = prober.answer(question(port))
        assert answered.proof is Proof.PROVEN
        assert answered.engine_version == "0.32.0"
        assert len(engine.asked) == 1
        assert engine.asked[0]["model"] == "served-name"

    with_engine(work)


def test_a_restarted_container_is_asked_again() -> None:
    async def work(engine: Engine, port: int, prober: Prober, woken: asyncio.Event) -> None:
        prober.answer(question(port))
        await woken.wait()
        assert prober.answer(question(port, starts=1)).proof is Proof.PENDING

    with_engine(work)


def test_an_engine_that_fails_first_is_proven_when_it_recovers() -> None:
    async def work(engine: Engine, port: int, prober: Prober, woken: asyncio.Event) -> None:
        engine.reply = lambda: web.Response(status=503, text="loading")
        prober.answer(question(port))
        while not engine.asked:
            await asyncio.sleep(0.01)
        engine.reply = lambda: web.json_response(json.loads(answer()))
        while prober.answer(question(port)).proof is not Proof.PROVEN:
            await asyncio.sleep(0.01)

    with_engine(work)


def test_a_fresh_operator_takes_no_traffic_from_pods_that_served_before_it_started() -> None:
    async def work(engine: Engine, port: int, prober: Prober, woken: asyncio.Event) -> None:
        engine.reply = lambda: web.Response(status=503, text="busy")
        before = question(port, ready_since=NOW - timedelta(hours=1))
        assert prober.answer(before).proof is Proof.PROVEN
        while not engine.asked:
            await asyncio.sleep(0.01)
        assert prober.answer(before).proof is Proof.PROVEN, "a busy engine is not a wrong one"

    with_engine(work)


def test_even_a_pod_from_before_is_refused_when_it_answers_as_something_else() -> None:
    async def work(engine: Engine, port: int, prober: Prober, woken: asyncio.Event) -> None:
        before = question(port, ready_since=NOW - timedelta(hours=1), fingerprint="another")
        prober.answer(before)
        await woken.wait()
        assert prober.answer(before).proof is Proof.CONTRADICTED

    with_engine(work)


def test_a_stand_by_leaves_the_traffic_with_pods_that_came_up_while_it_waited() -> None:
    async def run() -> None:
        moments = [NOW - timedelta(days=2)]
        prober = Prober(lambda key: None, lambda: moments[-1])
        promoted = question(9, ready_since=NOW - timedelta(days=1))
        moments.append(NOW)
        prober.take_over()
        assert prober.answer(promoted).proof is Proof.PROVEN
        await prober.close()

    asyncio.run(run())


def test_who_did_not_answer_before_the_lease_was_lost_for_a_moment_is_not_proven_by_taking_it_again() -> None:
    async def work(engine: Engine, port: int, prober: Prober, woken: asyncio.Event) -> None:
        engine.reply = lambda: web.Response(status=500, text="dead")
        silent = question(port, ready_since=NOW)
        assert prober.answer(silent).asked_since is None, "the question has not gone out yet"
        while not engine.asked:
            await asyncio.sleep(0.01)
        moments.append(NOW + timedelta(minutes=5))
        prober.take_over()
        said = prober.answer(silent)
        assert said.proof is Proof.PENDING
        assert said.asked_since == moments[0]

    with_engine(work, moments := [NOW + timedelta(seconds=1)])
