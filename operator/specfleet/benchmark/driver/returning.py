"""An engine that died under load is a finding; a pod that was deleted, or a network that is slow, is none."""

import http.client
import time
from collections.abc import Callable

from .counters import Counters, scrape
from .failures import CannotMeasureError
from .harness import Json


def process_is_gone(error: BaseException) -> bool:
    """Nobody listens at an address that is still there. After a deleted pod the address itself is gone: no route, or a
    time-out."""
    return isinstance(getattr(error, "reason", error), ConnectionError)


def await_return(arm: Json, seconds: float, check: Callable[[], None]) -> Counters | None:
    """The first scrape of an engine whose process was gone; None when its pod is gone too.

    Raises CannotMeasureError when it does not come back in time: no other run can be measured either.
    """
    deadline = time.monotonic() + seconds
    while True:
        check()
        try:
            return scrape(arm["url"])
        except (OSError, http.client.HTTPException) as error:
            if not process_is_gone(error):
                return None
            if time.monotonic() > deadline:
                said = f"the engine of {arm['pod']} ended and did not come back within {seconds:.0f} s: {error}"
                raise CannotMeasureError(said) from error
        time.sleep(0.5)
