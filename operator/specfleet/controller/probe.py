"""The operator's own question to a pod: a real completion with the expected fingerprint, and the engine's version.

/health answers 200 from engines that hang or die at the first request (vllm#39863, and measured). Answers are kept per
container start; a fresh operator asks again.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import aiohttp

from specfleet.api.model import EngineSpec
from specfleet.decide.observation import Proof
from specfleet.engine.identity import contradiction
from specfleet.kube.cache import Key
from specfleet.resources.pods import base_url

TIMEOUT_SECONDS = 30.0
RETRY_SECONDS = 2.0
CONCURRENT = 32

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answered:
    """What a pod said."""

    proof: Proof
    message: str = ""
    engine_version: str | None = None
    asked_since: datetime | None = None
    """When the first question to this start of the engine went out; None: none has."""


@dataclass(frozen=True, slots=True)
class Question:
    """Whom to ask and what to expect."""

    key: Key
    uid: str
    starts: int
    """Container restarts: another start is another engine."""
    ip: str
    port: int
    model: str
    fingerprint: str
    engine: EngineSpec | None
    """What the spec says about the engine; None for a pod of an earlier spec, checked when it came up."""
    ready_since: datetime


UNASKED = Answered(Proof.PENDING, "not asked yet")
BEFORE_US = Answered(
    Proof.PROVEN, "ready before this operator took over; the start-up probe inside the pod has proven it"
)
"""One that takes over must not take the traffic from pods that serve, only because it has not asked them yet."""


class Prober:
    """Asks pods in the background and wakes the reconcile when an answer is there."""

    def __init__(self, wake: Callable[[Key], None], clock: Callable[[], datetime]) -> None:
        self._wake = wake
        self._clock = clock
        self._took_over = clock()
        self._answers: dict[tuple[str, int, str], Answered] = {}
        self._asked: dict[tuple[str, int, str], datetime] = {}
        self._tasks: dict[tuple[str, int, str], asyncio.Task[None]] = {}
        self._limit = asyncio.Semaphore(CONCURRENT)
        self._session: aiohttp.ClientSession | None = None

    def take_over(self) -> None:
        """The Lease is ours from now on: what became ready before, nobody or another operator has looked after."""
        self._took_over = self._clock()

    def answer(self, question: Question) -> Answered:
        """What is known now; asks in the background unless proven."""
        slot = (question.uid, question.starts, question.fingerprint)
        known = self._answers.get(slot, UNASKED)
        if known.proof is Proof.PENDING and slot not in self._tasks:
            self._tasks[slot] = asyncio.get_running_loop().create_task(self._ask(slot, question))
        asked = self._asked.get(slot)
        ours = asked is not None and asked < self._took_over
        if known.proof is Proof.PENDING and question.ready_since < self._took_over and not ours:
            return BEFORE_US
        return replace(known, asked_since=asked)

    def keep_only(self, uids: set[str]) -> None:
        """Forget pods that are gone."""
        self._answers = {slot: answer for slot, answer in self._answers.items() if slot[0] in uids}
        self._asked = {slot: asked for slot, asked in self._asked.items() if slot[0] in uids}

    async def close(self) -> None:
        """Stop asking."""
        for task in self._tasks.values():
            task.cancel()
        if self._session is not None:
            await self._session.close()

    async def _ask(self, slot: tuple[str, int, str], question: Question) -> None:
        try:
            async with self._limit:
                self._asked.setdefault(slot, self._clock())
                answered = await self._complete(question)
            if answered.proof is Proof.PENDING:
                self._answers[slot] = answered
                await asyncio.sleep(RETRY_SECONDS)
            self._answers[slot] = answered
        finally:
            self._tasks.pop(slot, None)
            self._wake(question.key)

    async def _complete(self, question: Question) -> Answered:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS))
        base = base_url(question.ip, question.port)
        body = {
            "model": question.model,
            "prompt": "ready?",
            "max_tokens": 2,
            "temperature": 0,
        }
        try:
            async with self._session.get(f"{base}/version") as response:
                said = await response.json()
                version = str(said.get("version", "")) if isinstance(said, dict) else ""
            async with self._session.post(f"{base}/v1/completions", json=body) as response:
                status, text = response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return Answered(Proof.PENDING, f"the operator cannot ask {base}: {type(error).__name__} {error}".strip())
        return judge_answer(question.engine, question.fingerprint, version, status, text)


def judge_answer(engine: EngineSpec | None, fingerprint: str, version: str, status: int, text: str) -> Answered:
    """Proven, contradicted, or not there yet. 401 is proven by the pod's own start-up probe, which knows the key."""
    against = contradiction(engine, {"version": version}) if engine is not None else None
    if against is not None:
        return Answered(Proof.CONTRADICTED, against.sentence(), version)
    if status in (401, 403):
        return Answered(Proof.PROVEN, "behind an API key; the start-up probe inside the pod has proven it", version)
    if status != 200:
        return Answered(Proof.PENDING, f"a completion was answered with HTTP {status}: {text[:200]}", version)
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return Answered(Proof.PENDING, "a completion was answered with something that is not a JSON object", version)
    seen = answer.get("system_fingerprint")
    if seen != fingerprint:
        return Answered(Proof.CONTRADICTED, f"answers with fingerprint {seen}, expected {fingerprint}", version)
    if not answer.get("choices"):
        return Answered(Proof.PENDING, "a completion came back without choices", version)
    return Answered(Proof.PROVEN, "", version)
