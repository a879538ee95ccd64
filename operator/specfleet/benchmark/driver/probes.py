"""What is asked of both arms beside the load: greedy texts, and requests that speculation is known to break."""

import concurrent.futures
import hashlib
import http.client
import json
from typing import Any

from .completions import completion_text, post
from .failures import CannotMeasureError
from .harness import Json
from .message import ARMS
from .session import Session
from .texts import build_prompts

AGREEMENT_AT_ONCE = 8
NOT_AS_ASKED = 422
"""Stands for an answer with 200 that breaks its own request (a grammar, log-probabilities, a tool call)."""


SERIES = {"baseline": ("baseline", "baseline-again"), "speculative": ("speculative",)}
"""Texts that are asked of each arm, one series after the other."""


def probe_agreement(session: Session) -> None:
    """Greedy texts of each arm; the plain arm twice, because it does not always agree with itself.

    Both arms at once: nothing is timed, and the GPUs of one need not wait for the other's.
    """
    probe = session.plan.get("agreement")
    if not probe:
        return
    prompts = build_prompts(session.source, "", probe["prompts"], 64, session.characters_per_token, probe["seed"])
    greedy = {"max_tokens": probe["max_tokens"], "temperature": 0}

    def texts(arm: Json) -> list[str]:
        def ask(prompt: str) -> str:
            body = {**greedy, "model": arm["model"], "prompt": prompt}
            try:
                status, answer = post(arm["url"], "/v1/completions", body, 120.0)
            except (OSError, http.client.HTTPException) as error:
                raise CannotMeasureError(f"{arm['url']} does not answer: {error}") from error
            return hashlib.sha256(completion_text(answer).encode()).hexdigest()[:4] if status == 200 else "----"

        session.bench.check()
        # A few at a time, the same for every series: one by one they would take longer than a short benchmark.
        with concurrent.futures.ThreadPoolExecutor(AGREEMENT_AT_ONCE) as pool:
            return list(pool.map(ask, prompts))

    def of(role: str) -> dict[str, list[str]]:
        arm = session.plan["arms"].get(role)
        return {} if arm is None else {name: texts(arm) for name in SERIES[role]}

    with concurrent.futures.ThreadPoolExecutor(len(SERIES)) as arms:
        for found in arms.map(of, SERIES):
            session.texts.update(found)


def as_asked(expect: Any, answer: Json) -> bool:
    """Whether an answer keeps what the request demanded: one of the given texts, log-probabilities, a tool call."""
    choice = (answer.get("choices") or [{}])[0]
    if isinstance(expect, list):
        return completion_text(answer).strip() in expect
    if expect == "logprobs":
        return bool(choice.get("logprobs"))
    if expect == "tool_call":
        calls = (choice.get("message") or {}).get("tool_calls") or [{}]
        try:
            return isinstance(json.loads((calls[0].get("function") or {}).get("arguments", "")), dict)
        except (ValueError, TypeError):
            return False
    return True


def probe_requests(session: Session) -> None:
    """HTTP status of each known-to-break kind of request, per arm. 0: no answer; NOT_AS_ASKED: 200, but wrong."""
    for probe in session.plan.get("request_probes") or []:
        statuses = []
        for role in ARMS:
            arm = session.plan["arms"].get(role)
            if arm is None:
                statuses.append(-1)
                continue
            session.bench.check()
            body = {"model": arm["model"], "max_tokens": 8, "temperature": 0, **probe["body"]}
            try:
                status, answer = post(arm["url"], probe["path"], body, 60.0)
            except (OSError, http.client.HTTPException):
                status, answer = 0, {}
            if status == 200 and not as_asked(probe.get("expect"), answer):
                status = NOT_AS_ASKED
            statuses.append(status)
        session.requests[probe["name"]] = statuses
