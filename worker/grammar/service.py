"""The supervisor's handle of the grammar process: checks each grammar once, and caches the result."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable

from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse
from worker.engine.protocol import OutputGrammar
from worker.grammar.messages import Compile, GrammarCall, GrammarOptions, Profile
from worker.processes.call_process import ServiceSpec
from worker.processes.service import Service

MAX_SLOWDOWN = 4.0
"""Maximum cost of sampling a token under a grammar, as a multiple of the cost without one.

Ordinary schemas cost 1 to 2. With the default model, 4 adds a tenth to the step of a single stream.
"""
_MAX_RESULTS = 4096

_REMEDY = "make it smaller, with fewer values or a lower 'minLength'"

_PROFILE_SECONDS = 2.0
"""Maximum CPU time to sample under a grammar. Ordinary ones take 0.1 s with 49,000 tokens, 0.5 s with 256,000."""


class GrammarProcess:
    """Checks grammars in a subprocess, and caches the results."""

    def __init__(
        self,
        options: GrammarOptions,
        *,
        max_seconds: float,
        profile_seconds: float = _PROFILE_SECONDS,
        module: str = "worker.grammar.child",
        check_loaded: Callable[[], None] = lambda: None,
    ) -> None:
        """``max_seconds`` limits the compile time: the engine compiles again, and its whole batch waits for that.
        ``profile_seconds`` limits the CPU time to sample under a grammar. ``check_loaded`` is that of
        :class:`ServiceSpec`.
        """
        self._max_seconds = max_seconds
        self._profile_seconds = profile_seconds
        self._results: OrderedDict[bytes, asyncio.Task[str | None]] = OrderedDict()
        spec = ServiceSpec(
            module=module,
            options=options,
            reply=float,
            name="grammar process",
            deadline=2 * max_seconds,
            on_timeout=lambda seconds: _problem(f"It takes more than {seconds:g} s to compile or to try; {_REMEDY}"),
            on_crash=_problem("It can't be compiled: the compiler crashed on it"),
            check_loaded=check_loaded,
        )
        self._service: Service[GrammarCall, float] = Service(spec)

    def start(self) -> None:
        """Start the subprocess, unless it runs, without waiting for it. If that fails, the next check tries again."""
        if not self._service.running:
            self._service.start()

    async def check(self, grammar: OutputGrammar, param: str, tenant: str) -> None:
        """Return if ``grammar`` of ``tenant`` is safe to pass to the engine.

        Tenants do not share results: one could tell by the time which grammars others use.
        Raises :class:`RequestRefused` naming ``param`` if it is invalid, or too slow to compile or to sample under.
        """
        key = hashlib.sha256(f"{tenant}\n{grammar.tagged}\n{grammar.text}".encode()).digest()
        result = self._results.get(key)
        if result is None:
            result = self._results[key] = asyncio.create_task(self._evaluate(grammar, tenant), name="grammar check")
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

    async def _evaluate(self, grammar: OutputGrammar, tenant: str) -> str | None:
        """Return the reason why a grammar is refused, or None. Raises :class:`RequestRefused` if it is unknown."""
        try:
            seconds = await self._service.call(Compile(grammar), tenant)
            if seconds > self._max_seconds:
                return (
                    f"It takes {seconds:.2f} s to compile, and {self._max_seconds:g} s is the limit, because all "
                    f"sequences in the batch wait for it; {_REMEDY}"
                )
            profile = Profile(grammar, MAX_SLOWDOWN)
            slowdown = await self._service.call(profile, tenant, self._profile_seconds)
        except RequestRefused as refusal:
            if refusal.problem.kind is not ProblemKind.INVALID:
                raise
            return refusal.problem.message
        if slowdown > MAX_SLOWDOWN:
            return (
                f"Choosing a token takes {slowdown:.0f} times as long under it, and {MAX_SLOWDOWN:g} times is the "
                "limit, because all sequences in the batch wait for each token; use fewer repetitions of many "
                "characters and fewer alternatives with a shared prefix"
            )
        return None


def _problem(message: str) -> Problem:
    return Problem(kind=ProblemKind.INVALID, message=message)
