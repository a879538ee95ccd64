"""The engine: steps against absolute deadlines, and what they do to requests and metrics.

A step that ends at `t` is followed by one that begins at `t`, however late the process woke up: the mean time per token
is the model's, unless the process was kept off the CPU for longer than MAX_LAG_SECONDS.
"""

import asyncio
import random
from collections.abc import Callable

from vllm_sim.engine_metrics import EngineMetrics
from vllm_sim.faults import NONE, ActiveFaults
from vllm_sim.scheduler import Batch, Output, Scheduler
from vllm_sim.sequence import Sequence
from vllm_sim.step_time import StepTimer

MAX_LAG_SECONDS = 1.0
HANG_CHECK_SECONDS = 0.2


class EngineDeadError(Exception):
    """The engine is gone; nothing can be scheduled any more."""


class Engine:
    """Owns the scheduler's clock. All methods run on one event loop."""

    def __init__(
        self, scheduler: Scheduler, timer: StepTimer, metrics: EngineMetrics, on_death: Callable[[int, str], None]
    ) -> None:
        self._scheduler = scheduler
        self._timer = timer
        self._metrics = metrics
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._busy = False
        self.faults: ActiveFaults = NONE
        self.dead = False
        self.starved_steps = 0
        self.steps = 0
        self.on_idle: Callable[[], None] | None = None
        metrics.watch_load(
            lambda: float(len(scheduler.running)),
            lambda: float(len(scheduler.waiting)),
            scheduler.cache.usage,
        )

    def now(self) -> float:
        """Engine seconds."""
        return self._loop.time()

    @property
    def unfinished(self) -> int:
        """Requests running or waiting."""
        return len(self._scheduler.running) + len(self._scheduler.waiting)

    def apply_faults(self, faults: ActiveFaults) -> None:
        """What is broken from now on. An out-of-memory fault without a minimum load ends an idle engine too."""
        self.faults = faults
        self._check_memory()

    def _check_memory(self) -> None:
        exit_code = self.faults.out_of_memory
        if exit_code is not None and len(self._scheduler.running) >= self.faults.out_of_memory_running:
            self.die(exit_code, "CUDA out of memory")

    def submit(self, sequence: Sequence) -> None:
        """Take a request. Raises EngineDeadError."""
        if self.dead:
            raise EngineDeadError
        if self.faults.crash_on_request is not None:
            self.die(self.faults.crash_on_request, "AssertionError")
            raise EngineDeadError
        self._scheduler.add(sequence)
        if not self._busy:
            self._busy = True
            self._begin(self._loop.time())

    def abort(self, sequence: Sequence) -> None:
        """The client is gone. The real one counts such a request in no per-request metric, not even as an abort."""
        if self._scheduler.remove(sequence):
            self._tell_idle()

    def abort_all(self) -> None:
        """Every request ends now with finish_reason "abort"."""
        now = self._loop.time()
        for sequence in (*self._scheduler.running, *self._scheduler.waiting):
            self._scheduler.remove(sequence)
            self._count_finished(sequence, now, "abort")
            sequence.sink.tokens(0, "abort")

    def stop(self) -> None:
        """No step any more, and no word to the requests."""
        self.dead = True

    def die(self, exit_code: int, message: str) -> None:
        """The engine process crashes."""
        if not self.dead:
            self.dead = True
            for sequence in (*self._scheduler.running, *self._scheduler.waiting):
                self._scheduler.remove(sequence)
                sequence.sink.tokens(0, "dead")
            self._on_death(exit_code, message)

    def _begin(self, start: float) -> None:
        if self.dead:
            return
        faults = self.faults
        if faults.hang:
            self._loop.call_later(HANG_CHECK_SECONDS, self._resume)
            return
        self._check_memory()
        if self.dead:
            return
        if not self._scheduler.running and self._scheduler.waiting:
            start = max(start, self._scheduler.waiting[0].arrival)
        batch = self._scheduler.next_batch(start)
        if batch is None:
            self._busy = False
            self._tell_idle()
            return
        if batch.preempted:
            self._metrics.preemptions.value += batch.preempted
        seconds = self._timer.seconds(batch.tokens, batch.kv_tokens, batch.k, faults.step_factor)
        end = start + seconds
        self._loop.call_at(end, self._end, batch, end)

    def _resume(self) -> None:
        self._begin(self._loop.time())

    def _end(self, batch: Batch, end: float) -> None:
        if self.dead:
            return
        self.steps += 1
        outputs = self._scheduler.finish_batch(batch, end, self.faults.acceptance)
        tokens = 0
        for output in outputs:
            tokens += output.tokens
            self._observe(output, end)
            stopped = output.sequence.sink.tokens(output.tokens, output.finish_reason)
            if stopped and output.finish_reason is None:
                self._scheduler.finish(output.sequence)
                self._count_finished(output.sequence, end, "stop")
        prompt = sum(output.sequence.prompt_tokens for output in outputs if output.first)
        self._metrics.iteration_tokens.observe(tokens + prompt)
        now = self._loop.time()
        if now - end > MAX_LAG_SECONDS:
            self.starved_steps += 1
            end = now
        self._begin(end)

    def _observe(self, output: Output, end: float) -> None:
        metrics, sequence = self._metrics, output.sequence
        metrics.generation_tokens.value += output.tokens
        if output.first:
            metrics.ttft.observe(max(0.0, end - sequence.arrival))
            metrics.prompt_tokens.value += sequence.prompt_tokens
            metrics.prompt_computed.value += sequence.prompt_tokens - sequence.cached_tokens
            metrics.prompt_cache_hits.value += sequence.cached_tokens
            metrics.prompt_cached.value += sequence.cached_tokens
            metrics.prompt_cached_device.value += sequence.cached_tokens
            if self._scheduler.cache.prefix_caching:
                metrics.prefix_queries.value += sequence.prompt_tokens
                metrics.prefix_hits.value += sequence.cached_tokens
        else:
            metrics.itl.observe(end - sequence.last_token)
        sequence.last_token = end
        if output.drafted:
            metrics.count_draft(output.drafted, output.accepted)
            sequence.steps.append((output.drafted, output.accepted))
        if output.finish_reason is not None:
            self._count_finished(sequence, end, output.finish_reason)

    def _count_finished(self, sequence: Sequence, end: float, reason: str) -> None:
        metrics = self._metrics
        phantoms = self.faults.phantom_drafts_per_request
        k = self._scheduler.limits.speculative_tokens
        for _ in range(phantoms if k and sequence.acceptance is not None else 0):
            metrics.count_draft(k, 0)
        metrics.finished[reason].value += 1
        metrics.request_prompt.observe(sequence.prompt_tokens)
        metrics.request_generation.observe(sequence.emitted)
        metrics.max_generation.observe(sequence.emitted)
        metrics.params_n.observe(1)
        metrics.params_max_tokens.observe(sequence.max_tokens)
        metrics.e2e.observe(max(0.0, end - sequence.arrival))
        metrics.request_preemptions.observe(sequence.preemptions)
        metrics.prefill_computed.observe(sequence.prefill_computed)
        scheduled, first = sequence.first_scheduled, sequence.first_token
        decode = sequence.last_token - first if first is not None else 0.0
        metrics.queue_time.observe(max(0.0, (scheduled if scheduled is not None else end) - sequence.arrival))
        metrics.prefill_time.observe(
            max(0.0, first - scheduled) if first is not None and scheduled is not None else 0.0
        )
        metrics.decode_time.observe(decode)
        inference = sequence.last_token - scheduled if first is not None and scheduled is not None else 0.0
        metrics.inference_time.observe(max(0.0, inference))
        metrics.tpot.observe(decode / (sequence.emitted - 1) if sequence.emitted > 1 else 0.0)

    def _tell_idle(self) -> None:
        if self.on_idle is not None and self.unfinished == 0:
            self.on_idle()


def chance(share: float) -> bool:
    """True with a probability."""
    return share > 0 and (share >= 1 or random.random() < share)  # noqa: S311
