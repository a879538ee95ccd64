"""The work queue: one worker per key, no key twice, no key forgotten."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from specfleet.controller.queue import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, KeyQueue

A, B = ("ml", "a"), ("ml", "b")


def on_loop(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), timeout=10)

    asyncio.run(bounded())


def test_a_key_added_many_times_is_worked_on_once() -> None:
    async def work() -> None:
        queue = KeyQueue()
        for _ in range(5):
            queue.add(A)
        queue.add(B)
        assert len(queue) == 2
        assert [await queue.get(), await queue.get()] == [A, B]
        assert len(queue) == 0

    on_loop(work)


def test_a_key_that_changes_while_it_is_worked_on_is_worked_on_again_but_never_twice_at_once() -> None:
    async def work() -> None:
        queue = KeyQueue()
        queue.add(A)
        assert await queue.get() == A
        queue.add(A)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        assert not waiting.done(), "another worker must not get the same key"
        queue.done(A)
        assert await waiting == A
        queue.done(A)
        assert len(queue) == 0

    on_loop(work)


def test_other_keys_are_not_held_up_by_one_in_work() -> None:
    async def work() -> None:
        queue = KeyQueue()
        queue.add(A)
        await queue.get()
        queue.add(A)
        queue.add(B)
        assert await queue.get() == B

    on_loop(work)


def test_a_wish_for_later_comes_back_and_the_earliest_of_several_counts() -> None:
    async def work() -> None:
        queue = KeyQueue()
        queue.add_after(A, 30)
        queue.add_after(A, 0.01)
        queue.add_after(A, 60)
        assert await queue.get() == A

    on_loop(work)


def test_a_forgotten_key_does_not_come_back() -> None:
    async def work() -> None:
        queue = KeyQueue()
        queue.add_after(A, 0.01)
        queue.forget(A)
        queue.add_after(B, 0.02)
        assert await queue.get() == B
        assert len(queue) == 0

    on_loop(work)


def test_failures_wait_twice_as_long_each_time_up_to_a_limit_and_success_forgets_them() -> None:
    async def work() -> None:
        queue = KeyQueue()
        waits = [queue.retry(A) for _ in range(12)]
        assert waits[:3] == [FIRST_RETRY_SECONDS, 2 * FIRST_RETRY_SECONDS, 4 * FIRST_RETRY_SECONDS]
        assert waits[-1] == LAST_RETRY_SECONDS
        queue.succeeded(A)
        assert queue.retry(A) == FIRST_RETRY_SECONDS

    on_loop(work)


@pytest.mark.parametrize("workers", [1, 3])
def test_many_workers_bring_every_key_to_its_end_and_never_share_one(workers: int) -> None:
    async def work() -> None:
        queue, active, seen = KeyQueue(), set(), {}
        keys = [("ml", f"d{number}") for number in range(20)]

        async def worker() -> None:
            while True:
                key = await queue.get()
                assert key not in active
                active.add(key)
                await asyncio.sleep(0)
                seen[key] = seen.get(key, 0) + 1
                if seen[key] < 3:
                    queue.add(key)
                active.discard(key)
                queue.done(key)

        tasks = [asyncio.create_task(worker()) for _ in range(workers)]
        for key in keys:
            queue.add(key)
        while any(seen.get(key, 0) < 3 for key in keys):
            assert not any(task.done() for task in tasks)
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    on_loop(work)
