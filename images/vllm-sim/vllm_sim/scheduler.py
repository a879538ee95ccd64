"""Continuous batching: which requests are in a step, and what each of them gets from it. No clock and no I/O."""

from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from vllm_sim.acceptance import AcceptanceFault
from vllm_sim.kv_cache import KvCache
from vllm_sim.sequence import Sequence


@dataclass(frozen=True)
class SchedulerLimits:
    """The engine arguments that bound a batch."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    speculative_tokens: int = 0
    schedule: Items[tuple[int, int, int]] = ()
    """Dynamic speculation: (first batch size, last, k), inclusive; gaps keep the k before them."""
    drop_last_cached_block: bool = False
    draft_max_model_len: int | None = None
    """Once a request in the batch is longer, every draft of the batch is zeros (counted, never accepted)."""

    def k_for(self, batch_size: int) -> int:
        """Draft tokens per request at a batch size."""
        chosen = self.speculative_tokens
        for first, _, k in self.schedule:
            if batch_size >= first:
                chosen = min(k, self.speculative_tokens)
        return chosen


@dataclass(slots=True)
class Batch:
    """One step's work."""

    chunks: list[tuple[Sequence, int]] = field(default_factory=list)
    """(request, tokens scheduled for it)."""
    tokens: int = 0
    kv_tokens: int = 0
    k: int = 0
    drafts_useless: bool = False
    preempted: int = 0


@dataclass(slots=True)
class Output:
    """What one request got from a step."""

    sequence: Sequence
    tokens: int
    drafted: int
    accepted: int
    first: bool
    finish_reason: str | None


class Scheduler:
    """First come, first served; running requests before waiting ones; preempts the newest when blocks run out."""

    def __init__(self, limits: SchedulerLimits, cache: KvCache) -> None:
        self.limits = limits
        self.cache = cache
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()

    def add(self, sequence: Sequence) -> None:
        """Queue a request."""
        sequence.goal = sequence.prompt_tokens
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> bool:
        """Take a request out (aborted by its client). False when it is not here any more."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._release(sequence)
            return True
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return True
        return False

    def _release(self, sequence: Sequence) -> None:
        self.cache.give_back(sequence.blocks)
        sequence.blocks = 0

    def next_batch(self, now: float) -> Batch | None:
        """Choose the work of a step that begins at `now`; None when there is nothing to do."""
        batch = Batch()
        budget = self.limits.max_num_batched_tokens
        decodes = sum(1 for sequence in self.running if sequence.decoding())
        batch.k = self.limits.k_for(max(1, decodes)) if self.limits.speculative_tokens else 0
        budget = self._schedule_running(batch, budget)
        if not batch.preempted:
            self._admit(batch, budget, now)
        if not batch.chunks:
            return None
        limit = self.limits.draft_max_model_len
        if limit is not None and batch.k:
            batch.drafts_useless = any(sequence.computed + batch.k > limit for sequence, _ in batch.chunks)
        return batch

    def _schedule_running(self, batch: Batch, budget: int) -> int:
        index = 0
        while index < len(self.running) and budget > 0:
            sequence = self.running[index]
            if sequence.decoding():
                drafts = batch.k if sequence.acceptance is not None and sequence.acceptance.has_draft() else 0
                room = self.limits.max_model_len - sequence.computed - 1
                drafts = max(0, min(drafts, room))
                sequence.planned_drafts = drafts
                wanted = min(1 + drafts, budget)
            else:
                sequence.planned_drafts = 0
                wanted = min(sequence.goal - sequence.computed, budget)
            if not self._hold(sequence, wanted):
                victim = self.running.pop()
                self._preempt(victim, batch)
                if victim is sequence:
                    break
                continue
            batch.chunks.append((sequence, wanted))
            batch.tokens += wanted
            batch.kv_tokens += sequence.computed
            budget -= wanted
            index += 1
        return budget

    def _hold(self, sequence: Sequence, tokens: int) -> bool:
        needed = self.cache.blocks_for(sequence.computed + tokens) - sequence.blocks
        if needed <= 0:
            return True
        if not self.cache.take(needed):
            return False
        sequence.blocks += needed
        return True

    def _preempt(self, victim: Sequence, batch: Batch) -> None:
        for place, (sequence, tokens) in enumerate(batch.chunks):
            if sequence is victim:
                batch.tokens -= tokens
                batch.kv_tokens -= sequence.computed
                del batch.chunks[place]
                break
        self._release(victim)
        victim.goal = victim.prompt_tokens + victim.emitted
        victim.computed = 0
        victim.preemptions += 1
        batch.preempted += 1
        self.waiting.appendleft(victim)

    def _admit(self, batch: Batch, budget: int, now: float) -> None:
        limits = self.limits
        while self.waiting and budget > 0 and len(self.running) < limits.max_num_seqs:
            sequence = self.waiting[0]
            if sequence.arrival > now:
                # The engine woke up late: in its own time this request is not here yet.
                break
            hit = self.cache.cached_tokens(sequence.block_hashes, sequence.prompt_tokens, limits.drop_last_cached_block)
            wanted = min(sequence.goal - hit, budget)
            sequence.computed = hit
            if not self._hold(sequence, wanted):
                sequence.computed = 0
                break
            if sequence.first_scheduled is None:
                sequence.first_scheduled = now
                sequence.cached_tokens = hit
                sequence.prefill_computed = sequence.goal - hit
            # The real scheduler pads a new request that needs one token only to k placeholders: drafts that can only
            # be refused. A dynamic schedule switches that off.
            one_token = wanted == 1 and sequence.goal - hit == 1
            sequence.planned_drafts = batch.k if one_token and sequence.acceptance and not limits.schedule else 0
            self.waiting.popleft()
            self.running.append(sequence)
            batch.chunks.append((sequence, wanted))
            batch.tokens += wanted
            batch.kv_tokens += hit
            budget -= wanted

    def finish_batch(self, batch: Batch, now: float, fault: AcceptanceFault) -> list[Output]:
        """What came out of a step that ended at `now`. Requests that end leave the running list."""
        outputs: list[Output] = []
        for sequence, scheduled in batch.chunks:
            if sequence.blocks == 0:
                continue
            output = self._advance(sequence, scheduled, batch, now, fault)
            if output is not None:
                outputs.append(output)
        return outputs

    def _advance(
        self, sequence: Sequence, scheduled: int, batch: Batch, now: float, fault: AcceptanceFault
    ) -> Output | None:
        drafted = accepted = 0
        if not sequence.decoding():
            sequence.computed += scheduled
            if not sequence.decoding():
                return None
            self.cache.remember(sequence.block_hashes)
            drafted = sequence.planned_drafts
        else:
            drafted = min(sequence.planned_drafts, scheduled - 1)
            if drafted and sequence.acceptance is not None and not batch.drafts_useless:
                accepted = sequence.acceptance.accepted(drafted, fault)
            sequence.computed += 1 + accepted
            sequence.goal = sequence.computed
        first = sequence.first_token is None
        if first:
            sequence.first_token = now
        left = sequence.limit() - sequence.emitted
        tokens = min(1 + accepted, left)
        sequence.emitted += tokens
        reason = sequence.reason() if sequence.emitted >= sequence.limit() else None
        if reason is not None:
            self.finish(sequence)
        return Output(sequence, tokens, drafted, accepted, first, reason)

    def finish(self, sequence: Sequence) -> None:
        """Free what a request that ended holds."""
        self.running.remove(sequence)
        self._release(sequence)
