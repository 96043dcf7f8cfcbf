"""The supervisor's handle of the grammar process: checks each grammar once, and caches the result."""

import asyncio
import hashlib
from collections import OrderedDict

from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse
from shared.protocol.request import Constraint
from worker.grammar.interface import Compile, Cost, GrammarOptions
from worker.subprocess.service import Service

MAX_SLOWDOWN = 4.0
"""Maximum cost of sampling a token under a grammar, as a multiple of the cost without one.

Ordinary schemas cost 1 to 2. With the default model, 4 adds a tenth to the step of a single stream.
"""
_MAX_RESULTS = 4096


class GrammarProcess:
    """Checks constraints in a subprocess, and caches the results."""

    def __init__(
        self,
        options: GrammarOptions,
        *,
        max_seconds: float,
        deadline: float = 5.0,
        module: str = "worker.grammar.child",
    ) -> None:
        """``max_seconds`` limits the compile time: the engine compiles again, and its whole batch waits for that. A
        check has ``deadline`` seconds of CPU time.
        """
        self._max_seconds = max_seconds
        self._results: OrderedDict[bytes, asyncio.Task[str | None]] = OrderedDict()
        self._service: Service[Compile, Cost] = Service(
            module,
            options,
            Cost,
            name="grammar process",
            deadline=deadline,
            on_timeout=_problem(f"It takes more than {deadline:g} s to compile and to try; make it smaller"),
            on_crash=_problem("It can't be compiled: the compiler crashed on it"),
        )

    @property
    def pid(self) -> int | None:
        """Process id of the current subprocess, or None."""
        return self._service.pid

    def start(self) -> None:
        """Start the subprocess without waiting for it. If that fails, the first check tries again."""
        self._service.start()

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
        except RequestRefused:
            # The worker is at fault, not the grammar.
            self._results.pop(key, None)
            raise
        if fault is not None:
            message = f"The grammar that '{param}' asks for was refused. {fault}."
            raise refuse(ProblemKind.INVALID, message, param=param)

    async def stop(self) -> None:
        """Cancel running checks and stop the subprocess."""
        for result in self._results.values():
            result.cancel()
        await asyncio.gather(*self._results.values(), return_exceptions=True)
        await self._service.stop()

    async def _evaluate(self, constraint: Constraint) -> str | None:
        """Return the reason why a constraint is refused, or None. Raises :class:`RequestRefused` if it is unknown."""
        try:
            cost = await self._service.call(Compile(constraint, MAX_SLOWDOWN))
        except RequestRefused as refusal:
            if refusal.problem.kind is not ProblemKind.INVALID:
                raise
            return refusal.problem.message
        if cost.compile > self._max_seconds:
            return (
                f"It takes {cost.compile:.2f} s to compile, and {self._max_seconds:g} s is the limit, because all "
                "answers in the batch wait for it; make it smaller"
            )
        if cost.slowdown > MAX_SLOWDOWN:
            return (
                f"Choosing a token takes {cost.slowdown:.0f} times as long under it, and {MAX_SLOWDOWN:g} times is the "
                "limit, because all answers in the batch wait for each token; use fewer repetitions of many "
                "characters and fewer alternatives with a shared prefix"
            )
        return None


def _problem(message: str) -> Problem:
    return Problem(kind=ProblemKind.INVALID, message=message)
