"""The event loop of all processes: uvloop where available. Their signals."""

import asyncio
import signal
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


def on_signal(number: signal.Signals, callback: Callable[..., object], *arguments: object) -> None:
    """Have the running event loop call ``callback`` at signal ``number``, unless who started the process ignores it.

    nohup ignores SIGHUP, and a script's shell SIGINT for what runs in its background.
    """
    if signal.getsignal(number) is not signal.SIG_IGN:
        asyncio.get_running_loop().add_signal_handler(number, callback, *arguments)
