"""The event loop of all processes: uvloop where available."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

new_event_loop: Callable[[], asyncio.AbstractEventLoop]
try:
    from uvloop import new_event_loop
except ImportError:  # not available on Windows
    from asyncio import new_event_loop

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` and return its result, like :func:`asyncio.run`, on uvloop if installed."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
