"""The client against a real HTTP server that misbehaves in known ways."""

import asyncio
import io
import json
from collections import Counter
from typing import Any

from aiohttp import web

from e2e.road.outcomes import Outcome
from e2e.road.traffic import Aim, Traffic

CHUNK = {"choices": [{"index": 0, "text": "a ", "finish_reason": None}]}
LAST = {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]}
USAGE = {"choices": [], "usage": {"completion_tokens": 9}}


async def whole(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    if not body["stream"]:
        return web.json_response({**LAST, "usage": {"completion_tokens": body["max_tokens"]}})
    return await stream(request, [CHUNK, LAST, USAGE], done=True)


async def stream(request: web.Request, chunks: list[dict[str, Any]], done: bool) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for chunk in chunks:
        data = f"data: {json.dumps(chunk)}\n\n".encode()
        await response.write(data[:7])
        await response.write(data[7:])
    if done:
        await response.write(b"data: [DONE]\n\n")
    return response


async def cut(request: web.Request) -> web.StreamResponse:
    await stream(request, [CHUNK], done=False)
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def aborted(request: web.Request) -> web.StreamResponse:
    ending = {"choices": [{"index": 0, "text": "", "finish_reason": "abort"}]}
    return await stream(request, [CHUNK, ending], done=True)


def drive(handler: Any, most: int = 12) -> list[Outcome]:
    """Send `most` requests and return what became of them."""

    async def run() -> list[Outcome]:
        application = web.Application()
        application.router.add_post("/v1/completions", handler)
        application.router.add_post("/v1/chat/completions", handler)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address = runner.addresses[0]
        log = io.StringIO()
        aim = Aim(f"http://{address[0]}:{address[1]}", "x.example", "m", rate=200, long_streams=1, most_requests=most)
        await asyncio.wait_for(Traffic(aim, log).run(), 30)
        await runner.cleanup()
        return [Outcome(**json.loads(line)) for line in log.getvalue().splitlines()]

    return asyncio.run(run())


def test_every_request_is_one_line_and_whole_answers_are_not_failures() -> None:
    outcomes = drive(whole)
    assert len(outcomes) >= 12
    assert [one.fault for one in outcomes if one.fault is not None] == []
    assert {"stream", "plain", "long"} <= set(Counter(one.kind for one in outcomes))
    assert all(one.tokens for one in outcomes)
    assert len({one.number for one in outcomes}) == len(outcomes)


def test_a_cut_stream_is_a_failure() -> None:
    assert all(one.fault is not None for one in drive(cut) if one.kind != "plain")


def test_an_aborted_stream_is_a_failure_although_it_ended_with_done() -> None:
    assert all("abort" in (one.fault or "") for one in drive(aborted) if one.kind != "plain")


def test_a_refused_connection_is_a_failure() -> None:
    log = io.StringIO()
    aim = Aim("http://127.0.0.1:9", "x.example", "m", rate=500, long_streams=0, most_requests=5)
    asyncio.run(Traffic(aim, log).run())
    found = [Outcome(**json.loads(line)) for line in log.getvalue().splitlines()]
    assert len(found) == 5
    assert all(one.fault and "Connect" in one.fault for one in found)
