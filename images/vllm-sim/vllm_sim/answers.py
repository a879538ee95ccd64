"""Answer bodies and server-sent events of the two completion endpoints, key by key as vLLM 0.32 writes them."""

import json
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Any

from vllm_sim.api_errors import ENGINE_DEAD, internal_error
from vllm_sim.generation import Generation
from vllm_sim.http_server import Response
from vllm_sim.sequence import Sequence
from vllm_sim.tokens import TextStream

_LOGPROB = -0.1
DONE = b"data: [DONE]\n\n"
SpeculativeMetrics = Callable[[Sequence], "dict[str, Any] | None"]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Answer:
    """Turns the tokens of one request into its answer. Implements TokenSink."""

    __slots__ = (
        "_created",
        "_fingerprint",
        "_generation",
        "_held",
        "_middle",
        "_pieces",
        "_prefix",
        "_request_id",
        "_response",
        "_role_sent",
        "_spec_metrics",
        "_stop_reason",
        "_text",
        "_words",
        "sequence",
    )

    def __init__(
        self,
        generation: Generation,
        response: Response,
        request_id: str,
        created: int,
        fingerprint: str,
        words: TextStream,
        spec_metrics: SpeculativeMetrics,
    ) -> None:
        self._generation = generation
        self._response = response
        self._request_id = request_id
        self._created = created
        self._fingerprint = fingerprint
        self._words = words
        self._spec_metrics = spec_metrics
        self._text = generation.echo
        self._pieces: list[str] = []
        self._held = ""
        self._role_sent = False
        self._stop_reason: str | None = None
        self.sequence: Sequence | None = None
        kind = "chat.completion.chunk" if generation.chat else "text_completion"
        head = f'"id":"{request_id}","object":"{kind}","created":{created},"model":{_json(generation.model)}'
        self._prefix = f'data: {{{head},"choices":['
        self._middle = '{"index":0,"delta":{"content":' if generation.chat else '{"index":0,"text":'
        if generation.stream:
            response.start_stream()

    # -------------------------------------------------------------------------------------------- tokens of one step

    def tokens(self, count: int, finish_reason: str | None) -> bool:
        """New tokens, and the reason if they are the last. True when a stop string ended the request."""
        if finish_reason == "dead":
            self._dead()
            return False
        ends = finish_reason == "stop"
        fresh = self._words.take(count, ends)
        text = "".join(fresh)
        if self._generation.stop:
            text, met = self._cut(text, finish_reason is not None)
            if met:
                finish_reason = "stop"
        if self._generation.logprobs:
            self._pieces += fresh
        if self._generation.stream:
            self._send(text, fresh, finish_reason)
        else:
            self._text += text
            if finish_reason is not None:
                self._response.send(200, self._body(finish_reason))
        return self._stop_reason is not None

    def _cut(self, text: str, last: bool) -> tuple[str, bool]:
        """Hold back what could begin a stop string; cut before one."""
        text = self._held + text
        found = [(text.find(stop), stop) for stop in self._generation.stop if stop in text]
        if found:
            place, self._stop_reason = min(found)
            self._held = ""
            return text[:place], True
        if last:
            self._held = ""
            return text, False
        keep = max(len(stop) for stop in self._generation.stop) - 1
        if keep <= 0:
            self._held = ""
            return text, False
        self._held = text[-keep:]
        return text[: len(text) - len(self._held)], False

    def _dead(self) -> None:
        error = internal_error(ENGINE_DEAD)
        if self._generation.stream:
            self._response.end_stream(b"data: " + error.body() + b"\n\n" + DONE)
        else:
            self._response.send(error.status, error.body())

    # ------------------------------------------------------------------------------------------------------ streaming

    def _send(self, text: str, fresh: Items[str], finish_reason: str | None) -> None:
        generation = self._generation
        out = ""
        if generation.chat and not self._role_sent:
            self._role_sent = True
            out = (
                f'{self._prefix}{{"index":0,"delta":{{"role":"assistant","content":""}},"logprobs":null,'
                '"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}\n\n'
            )
        if generation.tool is None:
            out += self._chunk(text, fresh, finish_reason)
        elif finish_reason is not None:
            out += self._tool_chunks(finish_reason)
        if finish_reason is None:
            if out:
                self._response.write(out.encode())
            return
        if generation.include_usage:
            out += self._usage_chunk()
        self._response.end_stream(out.encode() + DONE)

    def _chunk(self, text: str, fresh: Items[str], finish_reason: str | None) -> str:
        reason = "null" if finish_reason is None else f'"{finish_reason}"'
        stop = _json(self._stop_reason)
        logprobs = _json(self._logprobs(fresh)) if self._generation.logprobs else "null"
        usage = f',"usage":{_json(self._usage(False))}' if self._generation.continuous_usage else ""
        if finish_reason is not None and not self._generation.include_usage:
            # Otherwise it comes with the usage.
            usage += f',"system_fingerprint":{_json(self._fingerprint)}'
        if self._generation.chat:
            tail = f'"stop_reason":{stop},"token_ids":null' if finish_reason is not None else '"token_ids":null'
            return (
                f'{self._prefix}{self._middle}{_json(text)}}},"logprobs":{logprobs},"finish_reason":{reason},{tail}}}]'
                f"{usage}}}\n\n"
            )
        return (
            f'{self._prefix}{self._middle}{_json(text)},"logprobs":{logprobs},"finish_reason":{reason},'
            f'"stop_reason":{stop},"prompt_token_ids":null,"token_ids":null}}]{usage}}}\n\n'
        )

    def _tool_chunks(self, finish_reason: str) -> str:
        call = {"index": 0, **self._tool_call()}
        fingerprint = f',"system_fingerprint":{_json(self._fingerprint)}' if not self._generation.include_usage else ""
        reason = "tool_calls" if finish_reason in ("stop", "length") else finish_reason
        return (
            f'{self._prefix}{{"index":0,"delta":{{"tool_calls":[{_json(call)}]}},"logprobs":null,"finish_reason":null,'
            f'"token_ids":null}}]}}\n\n{self._prefix}{{"index":0,"delta":{{"content":""}},"logprobs":null,'
            f'"finish_reason":"{reason}","stop_reason":null,"token_ids":null}}]{fingerprint}}}\n\n'
        )

    def _usage_chunk(self) -> str:
        metrics = self._metrics()
        tail = f',"metrics":{_json({"speculative_decoding": metrics})}' if metrics is not None else ""
        usage, fingerprint = _json(self._usage(False)), _json(self._fingerprint)
        return f'{self._prefix}],"usage":{usage},"system_fingerprint":{fingerprint}{tail}}}\n\n'

    # ------------------------------------------------------------------------------------------------------ whole body

    def _body(self, finish_reason: str) -> bytes:
        generation = self._generation
        choice: dict[str, Any] = {"index": 0}
        logprobs = self._logprobs(self._pieces) if generation.logprobs else None
        end = {
            "logprobs": logprobs,
            "finish_reason": finish_reason,
            "stop_reason": self._stop_reason,
            "token_ids": None,
        }
        head = {
            "id": self._request_id,
            "object": "chat.completion" if generation.chat else "text_completion",
            "created": self._created,
            "model": generation.model,
        }
        middle = {"service_tier": None, "system_fingerprint": self._fingerprint, "usage": self._usage(True)}
        tail: dict[str, Any] = {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": self._body_metrics()}
        if generation.chat:
            choice |= {"message": self._message(), **end, "routed_experts": None}
            if generation.tool is not None:
                choice["finish_reason"] = "tool_calls"
            extra = {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
            return _json({**head, "choices": [choice], **middle, **extra, **tail}).encode()
        more = {"prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None}
        choice |= {"text": self._text, **end, **more}
        return _json({**head, "choices": [choice], **middle, **tail}).encode()

    def _message(self) -> dict[str, Any]:
        content = None if self._generation.tool is not None else self._text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None, "annotations": None}
        message |= {"audio": None, "function_call": None}
        if self._generation.tool is not None:
            message["tool_calls"] = [self._tool_call()]
        return message | {"reasoning": None}

    def _tool_call(self) -> dict[str, Any]:
        function = {"name": self._generation.tool, "arguments": '{"answer": "yes"}'}
        return {"id": f"chatcmpl-tool-{self._request_id[-16:]}", "type": "function", "function": function}

    def _usage(self, details: bool) -> dict[str, Any]:
        sequence = self.sequence
        prompt, made = (sequence.prompt_tokens, sequence.emitted) if sequence is not None else (0, 0)
        usage: dict[str, Any] = {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made}
        return usage | {"prompt_tokens_details": None, "completion_tokens_details": None} if details else usage

    def _metrics(self) -> dict[str, Any] | None:
        return self._spec_metrics(self.sequence) if self.sequence is not None else None

    def _body_metrics(self) -> dict[str, Any] | None:
        metrics = self._metrics()
        if metrics is None:
            return None
        timing = ("time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second")
        return {**dict.fromkeys(timing), "speculative_decoding": metrics}

    def _logprobs(self, fresh: Items[str]) -> dict[str, Any]:
        top = self._generation.top_logprobs
        if self._generation.chat:
            tokens = [{"token": piece, "logprob": _LOGPROB, "bytes": list(piece.encode())} for piece in fresh]
            return {"content": [{**token, "top_logprobs": [token] if top else []} for token in tokens]}
        offsets, place = [], 0
        for piece in fresh:
            offsets.append(place)
            place += len(piece)
        values = [_LOGPROB] * len(offsets)
        return {
            "text_offset": offsets,
            "token_logprobs": values,
            "tokens": list(fresh),
            "top_logprobs": [{piece: _LOGPROB} if top else None for piece in fresh],
        }


def speculative_metrics(sequence: Sequence, k: int, detailed: bool) -> dict[str, Any]:
    """`metrics.speculative_decoding` of an answer (--per-request-spec-decode-metrics)."""
    steps = sequence.steps
    drafted = sum(step[0] for step in steps)
    accepted = sum(step[1] for step in steps)
    histogram = [0] * (k + 1)
    for step in steps:
        histogram[step[1]] += 1
    found: dict[str, Any] = {
        "mean_acceptance_length": 1 + accepted / len(steps) if steps else None,
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "acceptance_histogram": histogram,
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": k,
    }
    if detailed:
        found["per_step_accepted"] = [step[1] for step in steps]
        found["per_step_drafted"] = [step[0] for step in steps]
    return found
