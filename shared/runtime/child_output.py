"""The output of subprocesses, as lines of this process's log."""

import asyncio
import logging
import os
from typing import Self

logger = logging.getLogger(__name__)

_LONGEST = 64 * 1024
"""Bytes after which a line is cut."""


class ChildOutput(asyncio.Protocol):
    """Logs each line that a subprocess writes, whoever writes it: its Python code, native libraries, or a crash.

    Enter it to start the subprocess, with :attr:`writer` as standard output and error.
    """

    def __init__(self, name: str) -> None:
        """``name`` is that of the subprocess in the log."""
        self._name = name
        self._rest = b""
        self._transport: asyncio.BaseTransport | None = None
        self._ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._reader, self.writer = os.pipe()
        return self

    async def __aexit__(self, error: type[BaseException] | None, *details: object) -> None:
        os.close(self.writer)
        if error is not None:
            os.close(self._reader)
            return
        pipe = os.fdopen(self._reader, "rb")
        self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: self, pipe)

    async def end(self, patience: float = 1.0) -> None:
        """Wait until the rest is logged, but no longer than ``patience`` seconds: another process may have the pipe."""
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(patience):
                await self._ended.wait()
        except TimeoutError:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._log(line)

    def connection_lost(self, error: Exception | None) -> None:
        self._log(self._rest)
        self._ended.set()

    def _log(self, line: bytes) -> None:
        if text := line.decode(errors="replace").rstrip():
            logger.warning("%s: %s", self._name, text)
