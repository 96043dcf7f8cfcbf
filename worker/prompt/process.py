"""The prompt process as the supervisor sees it: bounded in time, replaced when it hangs or dies."""

import asyncio
from collections.abc import Awaitable
from itertools import count

import msgspec

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest
from worker.prompt.interface import Prepare, Prepared, PromptOptions, PromptReady, PromptRefused, PromptReply
from worker.worker_subprocess import SubprocessCrashed, SubprocessTimeout, SubprocessUnavailable, WorkerSubprocess

MODULE = "worker.prompt.child"


class PromptError(SubprocessUnavailable):
    """The prompt process can't be started, or has been stopped; no request can be prepared."""


class PromptProcess:
    """Prepares prompts in a child process, one after the other, in order of arrival.

    A request that takes longer than ``deadline`` seconds is refused and the child replaced; after a crash it is tried
    once more. The requests behind it wait for the new child.
    """

    def __init__(
        self, options: PromptOptions, *, deadline: float = 10.0, load_deadline: float = 120.0, module: str = MODULE
    ) -> None:
        """``load_deadline`` is how many seconds loading the tokenizer may take."""
        self._deadline = deadline
        self._numbers = count(1)
        self._child: WorkerSubprocess[Prepare, PromptReply, PromptReady] = WorkerSubprocess(
            module,
            options,
            msgspec.msgpack.Decoder(PromptReply),
            name="prompt process",
            ready=PromptReady,
            deadline=deadline,
            load_deadline=load_deadline,
            unavailable=PromptError,
        )

    @property
    def pid(self) -> int | None:
        """Process id of the present child."""
        return self._child.pid

    async def start(self) -> None:
        """Start the process; returns at once. Failures come out of :meth:`ready` and :meth:`prepared`."""
        self._child.start()

    async def ready(self) -> int:
        """Wait until the tokenizer is loaded; return the context length in tokens. Raises :class:`PromptError`."""
        return (await self._child.ready()).context_length

    async def ended(self) -> None:
        """Wait until no more prompts can be prepared. Raises :class:`PromptError` unless :meth:`stop` was called."""
        await self._child.ended()

    def ask(self, request: ChatRequest) -> asyncio.Future[PromptReply]:
        """Ask at once for the request's prompt, for :meth:`prepared`; cancelled in time, it is not made."""
        return self._child.ask(Prepare(next(self._numbers), request))

    async def prepared(self, asked: Awaitable[PromptReply]) -> Prepared:
        """Return the prompt's token ids and the plan for the answer to it, of a prompt that was ``asked`` for.

        Raises :class:`RequestRefused` when the request can't be served, and :class:`PromptError` when
        no request can.
        """
        try:
            answer = await asked
        except SubprocessTimeout:
            raise refuse(
                ProblemKind.TEMPLATE,
                f"The prompt was not ready within {self._deadline:g} s: the model's chat template takes too long for "
                "these messages.",
                param="messages",
            ) from None
        except SubprocessCrashed as error:
            raise refuse(
                ProblemKind.POISON,
                f"Preparing the prompt ended the tokenizer's process {error.times} times; it is not tried again.",
            ) from None
        match answer:
            case Prepared():
                return answer
            case PromptRefused(_, problem):
                raise RequestRefused(problem)
            case _:
                raise refuse(ProblemKind.INTERNAL, "The prompt process gave an answer that nobody asked for.")

    async def stop(self) -> None:
        """End the process; whoever still waits gets :class:`PromptError`."""
        await self._child.stop()
