"""When each request is sent: open loop, gamma intervals, scaled so that the whole takes requests / rate seconds."""

import math

from vllm_sim.bench.arguments import BenchArguments
from vllm_sim.bench.numpy_stream import NumpyStream


def send_delays(arguments: BenchArguments, count: int) -> list[float]:
    """Seconds after the start at which each of `count` requests is due."""
    stream = NumpyStream(arguments.seed)
    total, delays = 0.0, []
    for index in range(count):
        rate = _rate(arguments, index, count)
        if math.isinf(rate):
            gap = 0.0
        elif math.isinf(arguments.burstiness):
            gap = 1.0 / rate
        else:
            gap = stream.gamma(arguments.burstiness, 1.0 / (rate * arguments.burstiness))
        total += gap
        delays.append(total)
    if arguments.ramp_up_strategy is None and total > 0:
        scale = count / arguments.request_rate / total
        delays = [delay * scale for delay in delays]
    return delays


def _rate(arguments: BenchArguments, index: int, count: int) -> float:
    first, last = arguments.ramp_up_start_rps, arguments.ramp_up_end_rps
    if arguments.ramp_up_strategy is None or first is None or last is None:
        return arguments.request_rate
    progress = index / max(count - 1, 1)
    if arguments.ramp_up_strategy == "linear":
        return first + (last - first) * progress
    return first * math.pow(last / first, progress)
