"""The HTTP endpoints."""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vllm_sim.acceptance import RequestAcceptance
from vllm_sim.answers import Answer, speculative_metrics
from vllm_sim.api_errors import ENGINE_DEAD, SHUT_DOWN, ApiError, internal_error
from vllm_sim.arguments import ServeArguments
from vllm_sim.engine import Engine, EngineDeadError, chance
from vllm_sim.exposition import CONTENT_TYPE, Registry
from vllm_sim.faults import FaultError, FaultSource
from vllm_sim.generation import EngineRules, Generation, parse_generation
from vllm_sim.http_server import Request, Response
from vllm_sim.profile import Profile, ProposerProfile
from vllm_sim.sequence import Sequence
from vllm_sim.speculative_config import SpeculativeSettings
from vllm_sim.tokens import TextStream, block_hashes, natural_length, pieces, text_seed

_GET = ("GET",)
_POST = ("POST",)
_JSON_ANSWER_TOKENS = 24


@dataclass
class Identity:
    """What this engine says about itself."""

    arguments: ServeArguments
    profile: Profile
    speculation: SpeculativeSettings | None
    proposer: ProposerProfile | None
    max_model_len: int
    fingerprint: str
    created: int


class Endpoints:
    """Routes requests. `draining` and `dead` are set by the life cycle."""

    def __init__(self, identity: Identity, engine: Engine, registry: Registry, faults: FaultSource) -> None:
        self._who = identity
        self._engine = engine
        self._registry = registry
        self._faults = faults
        self._names = tuple(identity.arguments.served_model_name)
        self._rules = EngineRules(self._names, identity.max_model_len, identity.speculation is not None)
        self.draining = False
        self.dead = False
        routes: dict[str, tuple[tuple[str, ...], Callable[[Request, Response], None]]] = {
            "/v1/completions": (_POST, lambda request, response: self._generate(request, response, False)),
            "/v1/chat/completions": (_POST, lambda request, response: self._generate(request, response, True)),
            "/health": (_GET, self._health),
            "/ping": (("GET", "POST"), self._health),
            "/version": (_GET, self._version),
            "/v1/models": (_GET, self._models),
            "/metrics": (_GET, self._metrics),
            "/load": (_GET, self._load),
            "/tokenize": (_POST, self._tokenize),
            "/sim/faults": (("GET", "POST"), self._sim_faults),
            "/sim/state": (_GET, self._sim_state),
        }
        self._routes = routes

    def handler_name(self, path: str) -> str:
        """The label `handler` of the HTTP metrics."""
        return path if path in self._routes else "none"

    def __call__(self, request: Request, response: Response) -> None:
        """Answer one request, now or later."""
        route = self._routes.get(request.path)
        if route is None:
            response.send(404, b'{"detail":"Not Found"}')
            return
        methods, handle = route
        if request.method not in methods:
            response.send(405, b'{"detail":"Method Not Allowed"}', allow=", ".join(methods))
            return
        keys = self._who.arguments.api_key
        if keys and request.path.startswith("/v1") and request.headers.get("authorization", "")[7:] not in keys:
            response.send(401, b'{"error":"Unauthorized"}')
            return
        try:
            handle(request, response)
        except ApiError as error:
            response.send(error.status, error.body())

    # ----------------------------------------------------------------------------------------------------- completions

    def _generate(self, request: Request, response: Response, chat: bool) -> None:
        if self.dead:
            raise internal_error(ENGINE_DEAD)
        generation = parse_generation(request.body, chat, self._rules)
        if self.draining:
            raise internal_error(SHUT_DOWN)
        faults = self._engine.faults
        if chance(faults.error_share):
            raise internal_error("CUDA error: an illegal memory access was encountered")
        kind = "chatcmpl" if chat else "cmpl"
        name = f"{kind}-{request.headers.get('x-request-id') or secrets.token_hex(8)}"
        seed = self._text_seed(generation)
        wrong = chance(faults.wrong_output_share)
        words = TextStream(seed ^ 0xBAD if wrong else seed, generation.as_json)
        answer = Answer(generation, response, name, int(time.time()), self._who.fingerprint, words, self._spec_metrics)
        sequence = self._sequence(name, generation, seed, answer)
        answer.sequence = sequence
        response.on_disconnect = lambda: self._engine.abort(sequence)
        self._crash_if_unsupported()
        try:
            self._engine.submit(sequence)
        except EngineDeadError:
            answer.tokens(0, "dead")

    def _text_seed(self, generation: Generation) -> int:
        """Greedy: from prompt and model only, so that all arms say the same. Sampling: from its seed, or by chance."""
        arguments = self._who.arguments
        parts = (arguments.model, arguments.revision or "", *generation.prompt)
        if generation.temperature < 1e-5:
            return text_seed(*parts)
        return text_seed(*parts, secrets.randbits(32) if generation.seed is None else generation.seed)

    def _sequence(self, name: str, generation: Generation, seed: int, answer: Answer) -> Sequence:
        who = self._who
        length = None
        if not generation.ignore_eos:
            # From the prompt alone: two arms that sample the same prompts make answers of the same lengths.
            prompt_seed = text_seed(who.arguments.model, who.arguments.revision or "", *generation.prompt)
            output = who.profile.output_length
            length = max(generation.min_tokens + 1, natural_length(prompt_seed, output.median_tokens, output.log_sd))
            if generation.as_json or generation.tool is not None:
                length = min(length, _JSON_ANSWER_TOKENS)
        acceptance = None
        if who.proposer is not None and who.speculation is not None:
            acceptance = RequestAcceptance(who.proposer, seed, who.speculation.tokens, generation.temperature)
        salt = f"{generation.model}"
        return Sequence(
            request_id=name,
            prompt_tokens=len(generation.prompt),
            block_hashes=block_hashes(generation.prompt, who.arguments.block_size, salt),
            max_tokens=generation.max_tokens,
            end_after_tokens=length,
            arrival=self._engine.now(),
            sink=answer,
            acceptance=acceptance,
        )

    def _crash_if_unsupported(self) -> None:
        """The real engine becomes ready with this combination and dies on the first request."""
        settings = self._who.speculation
        if (
            settings is not None
            and settings.schedule
            and settings.method in ("medusa", "suffix", "extract_hidden_states")
        ):
            self._engine.die(1, "AssertionError: dynamic speculative decoding is not supported by this proposer")

    def _spec_metrics(self, sequence: Sequence) -> dict[str, Any] | None:
        wanted = self._who.arguments.per_request_spec_decode_metrics
        settings = self._who.speculation
        if settings is None or wanted == "none":
            return None
        return speculative_metrics(sequence, settings.tokens, wanted == "detailed")

    # ----------------------------------------------------------------------------------------------------------- others

    def _health(self, _: Request, response: Response) -> None:
        response.send(503 if self.dead else 200)

    def _version(self, _: Request, response: Response) -> None:
        response.send(200, b'{"version":"%b"}' % self._who.profile.engine_version.encode())

    def _models(self, _: Request, response: Response) -> None:
        response.send(200, json.dumps({"object": "list", "data": self._model_cards()}, separators=(",", ":")).encode())

    def _model_cards(self) -> list[dict[str, Any]]:
        created = int(time.time())
        permission = {"object": "model_permission", "created": created, "allow_create_engine": False}
        permission |= {"allow_sampling": True, "allow_logprobs": True, "allow_search_indices": False}
        permission |= {"allow_view": True, "allow_fine_tuning": False, "organization": "*", "group": None}
        permission |= {"is_blocking": False}
        return [
            {
                "id": name,
                "object": "model",
                "created": created,
                "owned_by": "vllm",
                "root": self._who.arguments.model,
                "parent": None,
                "max_model_len": self._who.max_model_len,
                "permission": [{"id": f"modelperm-{secrets.token_hex(8)}", **permission}],
            }
            for name in self._names
        ]

    def _metrics(self, _: Request, response: Response) -> None:
        response.send(200, self._registry.render(), CONTENT_TYPE)

    def _load(self, _: Request, response: Response) -> None:
        load = self._engine.unfinished if self._who.arguments.enable_server_load_tracking else 0
        response.send(200, b'{"server_load":%d}' % load)

    def _tokenize(self, request: Request, response: Response) -> None:
        try:
            text = str(json.loads(request.body)["prompt"])
        except (ValueError, KeyError, TypeError):
            raise ApiError(400, "Bad Request", "prompt is missing", "prompt") from None
        tokens = ["<s>", *pieces(text)]
        ids = [text_seed(token) % self._who.profile.vocab_size for token in tokens]
        body = {"count": len(ids), "max_model_len": self._who.max_model_len, "tokens": ids, "token_strs": None}
        response.send(200, json.dumps(body, separators=(",", ":")).encode())

    # ---------------------------------------------------------------------------------------------- simulation controls

    def _sim_faults(self, request: Request, response: Response) -> None:
        if not self._faults.http_allowed:
            response.send(404, b'{"detail":"Not Found"}')
            return
        if request.method == "POST":
            try:
                self._engine.apply_faults(self._faults.post(json.loads(request.body or b"[]")))
            except (FaultError, ValueError) as error:
                raise ApiError(400, "BadRequestError", str(error)) from None
        response.send(200, json.dumps(self._faults.describe()).encode())

    def _sim_state(self, _: Request, response: Response) -> None:
        settings = self._who.speculation
        state = {
            "method": settings.method if settings else None,
            "speculative_tokens": settings.tokens if settings else 0,
            "fingerprint": self._who.fingerprint,
            "unfinished": self._engine.unfinished,
            "steps": self._engine.steps,
            "starved_steps": self._engine.starved_steps,
            "draining": self.draining,
            "dead": self.dead,
            "faults": self._faults.describe(),
        }
        response.send(200, json.dumps(state).encode())
