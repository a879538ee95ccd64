"""Requests of our own: warm-up and probes."""

import json
import os
import urllib.error
import urllib.request

from .harness import API_KEY, Json


def post(base_url: str, path: str, body: Json, timeout: float) -> tuple[int, Json]:
    """POST JSON; (status, answer). An HTTP error is an answer, a dead server raises OSError.

    The Job has the engines' own environment: the key that they ask for is the one that they were given.
    """
    request = urllib.request.Request(  # noqa: S310
        base_url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    key = os.environ.get(API_KEY)
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            return answer.status, _json_or_empty(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _json_or_empty(error.read())


def _json_or_empty(body: bytes) -> Json:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def completion_text(answer: Json) -> str:
    """Text of the first choice; empty when there is none."""
    choices = answer.get("choices") or [{}]
    return str(choices[0].get("text", ""))
