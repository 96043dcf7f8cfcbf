"""The grammar process as the supervisor sees it: a verdict on every grammar, bounded in time, each asked for once."""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from itertools import count

import msgspec

from shared.errors import ProblemKind, RequestRefused, refuse
from shared.request import Constraint
from worker.grammar.interface import Answer, Compile, Compiled, Faulty, GrammarOptions, GrammarsFailed, GrammarsReady
from worker.ipc import Child

MODULE = "worker.grammar.child"
_MOST_VERDICTS = 4096
_MOST_CRASHES = 2
"""The first one may have been a process that was dead already."""

_LOAD_DEADLINE = 120.0
_log = logging.getLogger(__name__)


class _Unavailable(Exception):
    """The process could not be asked; that says nothing about the grammar."""


class GrammarProcess:
    """Checks constraints in a child process, one after the other, and remembers the verdicts.

    A grammar that takes longer than ``deadline`` seconds, or crashes the compiler twice, is refused and the child
    replaced.
    """

    def __init__(
        self, options: GrammarOptions, *, most_seconds: float, deadline: float = 5.0, module: str = MODULE
    ) -> None:
        """``most_seconds`` is how long compiling may take: the engine does it again, and all answers wait for it."""
        self._options = options
        self._most_seconds = most_seconds
        self._deadline = deadline
        self._module = module
        self._numbers = count(1)
        self._verdicts: OrderedDict[bytes, asyncio.Task[str | None]] = OrderedDict()
        self._turn = asyncio.Lock()
        self._child: Child[Answer, Compile] | None = None
        self._messages: AsyncIterator[Answer] | None = None
        self._loading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the present child, if there is one."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the process; returns at once. If that fails, the first check tries again."""
        self._loading = asyncio.create_task(self._prepare(), name="grammar process")

    async def check(self, constraint: Constraint, param: str) -> None:
        """Return if the engine can be given ``constraint``.

        Raises :class:`shared.errors.RequestRefused` naming ``param`` if it is invalid or too slow to compile.
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
        except _Unavailable as error:
            self._verdicts.pop(key, None)
            raise refuse(ProblemKind.INTERNAL, f"The worker could not check the grammar: {error}.") from error
        if fault is not None:
            raise _refusal(fault, param)

    async def stop(self) -> None:
        """End the process."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        for verdict in self._verdicts.values():
            verdict.cancel()
        await asyncio.gather(*self._verdicts.values(), return_exceptions=True)
        await self._end()

    async def _prepare(self) -> None:
        async with self._turn:
            try:
                await self._ready()
            except _Unavailable as error:
                _log.warning("grammars can't be checked for now: %s", error)

    async def _judge(self, constraint: Constraint) -> str | None:
        """Return what is wrong with a constraint, or None."""
        async with self._turn:
            for _ in range(_MOST_CRASHES):
                messages = await self._ready()
                if self._child is not None:
                    self._child.send(Compile(next(self._numbers), constraint))
                try:
                    async with asyncio.timeout(self._deadline):
                        answer = await anext(messages, None)
                except TimeoutError:
                    await self._replace()
                    return f"It takes more than {self._deadline:g} s to compile; make it smaller"
                if answer is not None:
                    break
                await self._end()
            else:
                await self._replace()
                return "It can't be compiled: the compiler crashed on it"
            match answer:
                case Faulty(_, message):
                    return message
                case Compiled(_, seconds) if seconds > self._most_seconds:
                    return (
                        f"It takes {seconds:.2f} s to compile, and {self._most_seconds:g} s is the limit, because all "
                        "answers in the batch wait for it; make it smaller"
                    )
                case Compiled():
                    return None
                case _:
                    raise _Unavailable("the process gave an answer that nobody asked for")

    async def _ready(self) -> AsyncIterator[Answer]:
        """Start a child if there is none; return its messages. Raises :class:`_Unavailable`."""
        if self._messages is not None:
            return self._messages
        arguments = [msgspec.json.encode(self._options).decode()]
        self._child = Child(self._module, arguments, msgspec.msgpack.Decoder(Answer))
        try:
            await self._child.start()
            messages = self._child.messages()
            async with asyncio.timeout(_LOAD_DEADLINE):
                first = await anext(messages, None)
        except (OSError, TimeoutError) as error:
            await self._end()
            raise _Unavailable("its process does not start") from error
        if not isinstance(first, GrammarsReady):
            await self._end()
            raise _Unavailable(first.message if isinstance(first, GrammarsFailed) else "its process died at once")
        self._messages = messages
        return messages

    async def _replace(self) -> None:
        """Have another child loaded before somebody needs it."""
        await self._end()
        self.start()

    async def _end(self) -> None:
        child, self._child, self._messages = self._child, None, None
        if child is not None:
            child.kill()
            await child.stop()


def _refusal(fault: str, param: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"The grammar that '{param}' asks for was refused. {fault}.", param=param)
