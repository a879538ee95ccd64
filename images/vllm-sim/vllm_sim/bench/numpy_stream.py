"""The random stream of `numpy.random.seed(S)` and its gamma variates, to send when the real bench sends."""

import math
import random


class NumpyStream:
    """NumPy's legacy generator (MT19937), as far as the arrivals need it."""

    def __init__(self, seed: int) -> None:
        state = [seed & 0xFFFFFFFF]
        for index in range(1, 624):
            state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + index) & 0xFFFFFFFF)
        source = random.Random()  # noqa: S311
        source.setstate((3, (*state, 624), None))
        self._uniform = source.random
        self._spare: float | None = None

    def exponential(self) -> float:
        """Standard exponential."""
        return -math.log(1.0 - self._uniform())

    def normal(self) -> float:
        """Standard normal: the polar method, two at a time."""
        if self._spare is not None:
            found, self._spare = self._spare, None
            return found
        while True:
            x, y = 2.0 * self._uniform() - 1.0, 2.0 * self._uniform() - 1.0
            square = x * x + y * y
            if 0.0 < square < 1.0:
                factor = math.sqrt(-2.0 * math.log(square) / square)
                self._spare = factor * x
                return factor * y

    def gamma(self, shape: float, scale: float) -> float:
        """Gamma variate: exponential for shape 1, rejection below it, Marsaglia and Tsang above it."""
        if shape == 1.0:
            return scale * self.exponential()
        return scale * (self._small(shape) if shape < 1.0 else self._large(shape))

    def _small(self, shape: float) -> float:
        while True:
            uniform, waiting = self._uniform(), self.exponential()
            if uniform <= 1.0 - shape:
                found = math.pow(uniform, 1.0 / shape)
                if found <= waiting:
                    return found
            else:
                tail = -math.log((1.0 - uniform) / shape)
                found = math.pow(1.0 - shape + shape * tail, 1.0 / shape)
                if found <= waiting + tail:
                    return found

    def _large(self, shape: float) -> float:
        base = shape - 1.0 / 3.0
        slope = 1.0 / math.sqrt(9.0 * base)
        while True:
            normal = self.normal()
            cube = 1.0 + slope * normal
            if cube <= 0.0:
                continue
            cube = cube**3
            uniform = self._uniform()
            if uniform < 1.0 - 0.0331 * normal**4:
                return base * cube
            if math.log(uniform) < 0.5 * normal * normal + base * (1.0 - cube + math.log(cube)):
                return base * cube
