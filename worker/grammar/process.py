"""The grammar process as the supervisor sees it: a verdict on every grammar, bounded in time, each asked for once."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from itertools import count

import msgspec

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import Constraint
from worker.grammar.interface import Compile, Compiled, GrammarOptions, GrammarReply, GrammarsReady, InvalidGrammar
from worker.worker_subprocess import SubprocessCrashed, SubprocessTimeout, SubprocessUnavailable, WorkerSubprocess

MODULE = "worker.grammar.child"
MOST_SLOWDOWN = 4.0
"""Most that choosing a token may take under a grammar, as a multiple of the time without one.

Ordinary schemas take 1 to 2. With the default model, 4 adds a tenth to the step of a single stream.
"""
_MOST_VERDICTS = 4096
_log = logging.getLogger(__name__)


class GrammarProcess:
    """Checks constraints in a child process, one after the other, and remembers the verdicts.

    A grammar that takes longer than ``deadline`` seconds to compile and to try, or crashes the compiler twice, is
    refused and the child replaced.
    """

    def __init__(
        self, options: GrammarOptions, *, most_seconds: float, deadline: float = 5.0, module: str = MODULE
    ) -> None:
        """``most_seconds`` is how long compiling may take: the engine does it again, and all answers wait for it."""
        self._most_seconds = most_seconds
        self._deadline = deadline
        self._numbers = count(1)
        self._verdicts: OrderedDict[bytes, asyncio.Task[str | None]] = OrderedDict()
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
        """Process id of the present child, if there is one."""
        return self._child.pid

    def start(self) -> None:
        """Start the process; returns at once. If that fails, the first check tries again."""
        self._child.start()
        self._watch = asyncio.create_task(self._tell_failure(), name="grammar process's end")

    async def check(self, constraint: Constraint, param: str) -> None:
        """Return if the engine can be given ``constraint``.

        Raises :class:`RequestRefused` naming ``param`` if it is invalid, or too slow to compile or to
        generate under.
        """
        key = hashlib.sha256(f"{constraint.kind}\n{constraint.value}".encode()).digest()
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = asyncio.create_task(self._judge(constraint), name="grammar check")
            if len(self._verdicts) > _MOST_VERDICTS:
                self._verdicts.popitem(last=False)
        self._verdicts.move_to_end(key)
        try:
            # Others may wait for the same verdict when this request is cancelled.
            fault = await asyncio.shield(verdict)
        except SubprocessUnavailable as error:
            self._verdicts.pop(key, None)
            raise refuse(ProblemKind.INTERNAL, f"The worker could not check the grammar: {error}.") from error
        if fault is not None:
            raise _refusal(fault, param)

    async def stop(self) -> None:
        """End the process."""
        for verdict in self._verdicts.values():
            verdict.cancel()
        await asyncio.gather(*self._verdicts.values(), return_exceptions=True)
        await self._child.stop()
        if self._watch is not None:
            await self._watch

    async def _tell_failure(self) -> None:
        try:
            await self._child.ended()
        except SubprocessUnavailable as error:
            _log.warning("grammars can't be checked for now: %s", error)

    async def _judge(self, constraint: Constraint) -> str | None:
        """Return what is wrong with a constraint, or None. Raises :class:`SubprocessUnavailable`."""
        if not self._child.running:
            self.start()
        try:
            answer = await self._child.call(Compile(next(self._numbers), constraint))
        except SubprocessTimeout:
            return f"It takes more than {self._deadline:g} s to compile and to try; make it smaller"
        except SubprocessCrashed:
            return "It can't be compiled: the compiler crashed on it"
        match answer:
            case InvalidGrammar(_, message):
                return message
            case Compiled(_, seconds) if seconds > self._most_seconds:
                return (
                    f"It takes {seconds:.2f} s to compile, and {self._most_seconds:g} s is the limit, because all "
                    "answers in the batch wait for it; make it smaller"
                )
            case Compiled(_, _, slowdown) if slowdown > MOST_SLOWDOWN:
                return (
                    f"Choosing a token takes {slowdown:.0f} times as long under it, and {MOST_SLOWDOWN:g} times is the "
                    "limit, because all answers in the batch wait for each token; use fewer repetitions of many "
                    "characters and fewer alternatives that begin alike"
                )
            case Compiled():
                return None
            case _:
                raise SubprocessUnavailable("the process gave an answer that nobody asked for")


def _refusal(fault: str, param: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"The grammar that '{param}' asks for was refused. {fault}.", param=param)
