"""Error answers of the OpenAI endpoints, as vLLM words them."""

import json


class ApiError(Exception):
    """An error answer."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> bytes:
        """The JSON body."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return json.dumps({"error": error}, separators=(",", ":"), ensure_ascii=False).encode()


def bad_request(message: str, param: str | None = None, value: object = None) -> ApiError:
    """400 from the engine's own checks: the parameter and its value stand in the message too."""
    if param is not None:
        message += f" (parameter={param})" if value is None else f" (parameter={param}, value={value})"
    return ApiError(400, "BadRequestError", message, param)


def invalid_field(kind: str, place: str, message: str, value: object, context: str = "") -> ApiError:
    """400 from the check of the body's form, as FastAPI's validation error is flattened by vLLM."""
    more = f", 'ctx': {{'error': {context!r}}}" if context else ""
    shown = f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, (dict, list)) else str(value)
    found = f"{{'type': {kind!r}, 'loc': {place!r}, 'msg': {message!r}, 'input': {shown!r}{more}}}"
    return ApiError(400, "Bad Request", f"1 validation error:\n  {found}", place)


def internal_error(message: str) -> ApiError:
    """500."""
    return ApiError(500, "InternalServerError", message)


SHUT_DOWN = "cannot schedule new futures after shutdown"
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
