"""KV blocks: how many are in use, and which full prompt blocks can be found again."""

from collections import OrderedDict
from collections.abc import Sequence


class KvCache:
    """A pool of blocks with a least-recently-used prefix cache in what is free.

    A simplification of the real one: a block that several running requests share is counted once per request.
    """

    def __init__(self, total_blocks: int, block_size: int, prefix_caching: bool) -> None:
        self.total_blocks = max(1, total_blocks)
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.used_blocks = 0
        self._cached: OrderedDict[int, None] = OrderedDict()

    def usage(self) -> float:
        """Share of the blocks that running requests hold, 0 to 1."""
        return self.used_blocks / self.total_blocks

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def take(self, blocks: int) -> bool:
        """Reserve blocks; False when there are not enough."""
        if self.used_blocks + blocks > self.total_blocks:
            return False
        self.used_blocks += blocks
        while len(self._cached) > self.total_blocks - self.used_blocks and self._cached:
            self._cached.popitem(last=False)
        return True

    def give_back(self, blocks: int) -> None:
        """Free blocks of a request that finished or was preempted."""
        self.used_blocks -= blocks

    def cached_tokens(self, hashes: Sequence[int], prompt_tokens: int, drop_last_block: bool) -> int:
        """Tokens of a prompt that need no computing; the last token always does, as the real engine needs its logits.

        `drop_last_block`: EAGLE-like proposers give up the last matched block (they need its hidden states).
        """
        if not self.prefix_caching:
            return 0
        limit = (prompt_tokens - 1) // self.block_size
        found = 0
        for value in hashes[:limit]:
            if value not in self._cached:
                break
            self._cached.move_to_end(value)
            found += 1
        if drop_last_block and found:
            found -= 1
        return found * self.block_size

    def remember(self, hashes: Sequence[int]) -> None:
        """Keep the full blocks of a computed prompt."""
        if not self.prefix_caching:
            return
        room = self.total_blocks
        for value in hashes:
            self._cached[value] = None
            self._cached.move_to_end(value)
        while len(self._cached) > room:
            self._cached.popitem(last=False)

    def forget(self) -> None:
        """Empty the prefix cache."""
        self._cached.clear()
