"""When requests are sent: the real one's gamma arrivals, drawn from the same MT19937 stream as numpy's."""

import math
import random
from collections.abc import Sequence


def numpy_stream(seed: int) -> random.Random:
    """Python's generator in the state that np.random.seed(seed) sets (init_genrand of MT19937)."""
    state = [seed & 0xFFFFFFFF]
    for index in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + index) & 0xFFFFFFFF)
    stream = random.Random()  # noqa: S311 - not for secrets
    stream.setstate((3, (*state, 624), None))
    return stream


def arrival_delays(stream: random.Random, count: int, requests_per_second: float, burstiness: float) -> Sequence[float]:
    """Seconds after the start at which each request is due; all 0 for an infinite rate.

    Gaps are gamma with shape `burstiness` (1: Poisson); their sum is scaled to count / rate, as the real one does.
    """
    if math.isinf(requests_per_second):
        return [0.0] * count
    scale = 1.0 / (requests_per_second * burstiness)
    total, delays = 0.0, []
    for _ in range(count):
        poisson = burstiness == 1.0
        total += -math.log(1.0 - stream.random()) * scale if poisson else stream.gammavariate(burstiness, scale)
        delays.append(total)
    factor = count / requests_per_second / total if total > 0 else 1.0
    return [delay * factor for delay in delays]
