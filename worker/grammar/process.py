"""Supervisor side of the grammar process: checks each grammar once, within a deadline, and caches the result."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from itertools import count

import msgspec

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import Constraint
from worker.grammar.interface import Compile, Compiled, GrammarOptions, GrammarReply, GrammarsReady, InvalidGrammar
from worker.subprocess.calls import SubprocessCrashed, SubprocessTimeout, SubprocessUnavailable, WorkerSubprocess

MODULE = "worker.grammar.child"
MAX_SLOWDOWN = 4.0
"""Maximum cost of sampling a token under a grammar, as a multiple of the cost without one.

Ordinary schemas cost 1 to 2. With the default model, 4 adds a tenth to the step of a single stream.
"""
_MAX_RESULTS = 4096
_log = logging.getLogger(__name__)


class GrammarProcess:
    """Checks constraints in a subprocess, one at a time, and caches the results.

    A grammar that takes longer than ``deadline`` seconds of CPU time to compile and test, or that crashes the compiler
    twice, is refused, and the subprocess is replaced.
    """

    def __init__(
        self, options: GrammarOptions, *, max_seconds: float, deadline: float = 5.0, module: str = MODULE
    ) -> None:
        """``max_seconds`` limits the compile time: the engine compiles again, and its whole batch waits for that."""
        self._max_seconds = max_seconds
        self._deadline = deadline
        self._numbers = count(1)
        self._results: OrderedDict[bytes, asyncio.Task[str | None]] = OrderedDict()
        self._child: WorkerSubprocess[Compile, GrammarReply, GrammarsReady] = WorkerSubprocess(
            module,
            options,
            msgspec.msgpack.Decoder(GrammarReply),
            name="grammar process",
            ready=GrammarsReady,
            deadline=deadline,
        )
        self._watch: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the current subprocess, or None."""
        return self._child.pid

    def start(self) -> None:
        """Start the subprocess without waiting for it. If that fails, the first check tries again."""
        self._child.start()
        self._watch = asyncio.create_task(self._log_failure(), name="grammar process exit")

    async def check(self, constraint: Constraint, param: str) -> None:
        """Return if ``constraint`` is safe to pass to the engine.

        Raises :class:`RequestRefused` naming ``param`` if it is invalid, or too slow to compile or to sample under.
        """
        key = hashlib.sha256(f"{constraint.kind}\n{constraint.value}".encode()).digest()
        result = self._results.get(key)
        if result is None:
            result = self._results[key] = asyncio.create_task(self._evaluate(constraint), name="grammar check")
            if len(self._results) > _MAX_RESULTS:
                self._results.popitem(last=False)
        self._results.move_to_end(key)
        try:
            # Shielded, because other requests may wait for the same check when this one is cancelled.
            fault = await asyncio.shield(result)
        except SubprocessUnavailable as error:
            self._results.pop(key, None)
            raise refuse(ProblemKind.INTERNAL, f"The worker could not check the grammar: {error}.") from error
        if fault is not None:
            raise _refusal(fault, param)

    async def stop(self) -> None:
        """Cancel running checks and stop the subprocess."""
        for result in self._results.values():
            result.cancel()
        await asyncio.gather(*self._results.values(), return_exceptions=True)
        await self._child.stop()
        if self._watch is not None:
            await self._watch

    async def _log_failure(self) -> None:
        try:
            await self._child.ended()
        except SubprocessUnavailable as error:
            _log.warning("grammar process is unavailable: %s", error)

    async def _evaluate(self, constraint: Constraint) -> str | None:
        """Return the reason why a constraint is refused, or None. Raises :class:`SubprocessUnavailable`."""
        if not self._child.running:
            self.start()
        try:
            answer = await self._child.call(Compile(next(self._numbers), constraint, MAX_SLOWDOWN))
        except SubprocessTimeout:
            return f"It takes more than {self._deadline:g} s to compile and to try; make it smaller"
        except SubprocessCrashed:
            return "It can't be compiled: the compiler crashed on it"
        match answer:
            case InvalidGrammar(_, message):
                return message
            case Compiled(_, seconds) if seconds > self._max_seconds:
                return (
                    f"It takes {seconds:.2f} s to compile, and {self._max_seconds:g} s is the limit, because all "
                    "answers in the batch wait for it; make it smaller"
                )
            case Compiled(_, _, slowdown) if slowdown > MAX_SLOWDOWN:
                return (
                    f"Choosing a token takes {slowdown:.0f} times as long under it, and {MAX_SLOWDOWN:g} times is the "
                    "limit, because all answers in the batch wait for each token; use fewer repetitions of many "
                    "characters and fewer alternatives with a shared prefix"
                )
            case Compiled():
                return None
            case _:
                raise SubprocessUnavailable("the grammar process sent an unexpected reply")


def _refusal(fault: str, param: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"The grammar that '{param}' asks for was refused. {fault}.", param=param)
