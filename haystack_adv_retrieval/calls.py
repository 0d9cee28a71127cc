"""
Calls of outside objects (stores, models, other components), written once for sync and async.

Logic that needs several such calls is a generator: it yields a `Call` (or `Parallel` calls) and is sent the answer.
`drive` runs it for a component's `run`, `drive_async` for its `run_async`. An exception of a call is thrown into the
generator at its `yield`, so a fallback is an ordinary `try`. Whatever ends a run, a cancellation too, closes the
generator, so its `finally` blocks run at once.
"""

import asyncio
import contextvars
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """
    One call of a method that may have an async twin.

    :param target: The object.
    :param method: Name of the sync method. Its async twin is the same name with `_async`; without one, the sync method
        runs in a thread.
    :param kwargs: Keyword arguments.
    """

    target: Any
    method: str
    kwargs: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Any:
        """Call the sync method."""
        return getattr(self.target, self.method)(**self.kwargs)

    async def run_async(self) -> Any:
        """Await the async twin, or the sync method in a thread."""
        twin = getattr(self.target, f"{self.method}_async", None)
        return await (twin(**self.kwargs) if twin else asyncio.to_thread(self.run))


@dataclass(frozen=True)
class Parallel:
    """
    Independent calls, at most `max_workers` at a time.

    The answers come in the order of the calls; a call that raised is answered by its exception.

    :param calls: The calls.
    :param max_workers: How many run at the same time.
    """

    calls: Sequence[Call]
    max_workers: int = 4

    def run(self) -> list[Any]:
        """Run the calls in threads, each in a copy of the caller's context, so that tracing spans nest."""
        if len(self.calls) <= 1 or self.max_workers == 1:
            return [_answer(call) for call in self.calls]
        with ThreadPoolExecutor(max_workers=min(self.max_workers, len(self.calls))) as pool:
            futures = [pool.submit(contextvars.copy_context().run, _answer, call) for call in self.calls]
            return [future.result() for future in futures]

    async def run_async(self) -> list[Any]:
        """Run the calls as tasks behind a semaphore."""
        free = asyncio.Semaphore(self.max_workers)

        async def answer(call: Call) -> Any:
            async with free:
                return await call.run_async()

        return await asyncio.gather(*map(answer, self.calls), return_exceptions=True)


def _answer(call: Call) -> Any:
    try:
        return call.run()
    except Exception as error:
        return error


@dataclass(frozen=True)
class _Pause:
    seconds: float

    def run(self) -> None:
        time.sleep(self.seconds)

    async def run_async(self) -> None:
        await asyncio.sleep(self.seconds)


def pause(seconds: float) -> Call:
    """
    Make a call that only takes time.

    :param seconds: How long.
    :returns: The call.
    """
    return Call(_Pause(seconds), "run")


Steps = Generator[Call | Parallel, Any, T]


def drive(steps: Steps[T]) -> T:
    """
    Run a generator of calls to its end, synchronously.

    :param steps: The generator.
    :returns: What the generator returns.
    """
    with closing(steps):
        try:
            call = next(steps)
            while True:
                try:
                    answer = call.run()
                except Exception as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


async def drive_async(steps: Steps[T]) -> T:
    """
    Run a generator of calls to its end, asynchronously.

    :param steps: The generator.
    :returns: What the generator returns.
    """
    with closing(steps):
        try:
            call = next(steps)
            while True:
                try:
                    answer = await call.run_async()
                except Exception as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
