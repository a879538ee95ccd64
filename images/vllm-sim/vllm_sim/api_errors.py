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


def bad_request(message: str, param: str | None = None) -> ApiError:
    """400."""
    return ApiError(400, "BadRequestError", message, param)


def internal_error(message: str) -> ApiError:
    """500."""
    return ApiError(500, "InternalServerError", message)


SHUT_DOWN = "cannot schedule new futures after shutdown"
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
