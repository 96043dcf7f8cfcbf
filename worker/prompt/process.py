"""The supervisor's handle of the prompt process: calls have a deadline; a hung or crashed process is replaced."""

import asyncio
from collections.abc import Awaitable
from itertools import count

import msgspec

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest
from worker.prompt.interface import Prepare, Prepared, PromptOptions, PromptReady, PromptRefused, PromptReply
from worker.subprocess.calls import SubprocessCrashed, SubprocessTimeout, SubprocessUnavailable, WorkerSubprocess

MODULE = "worker.prompt.child"


class PromptError(SubprocessUnavailable):
    """The prompt process can't be started, or has been stopped. No prompt can be prepared."""


class PromptProcess:
    """Prepares prompts in a subprocess, one at a time, in order of arrival.

    A request whose prompt takes longer than ``deadline`` seconds is refused and the process replaced. After a crash
    the prompt is tried once more. Waiting requests continue in the new process.
    """

    def __init__(
        self, options: PromptOptions, *, deadline: float = 10.0, load_deadline: float = 120.0, module: str = MODULE
    ) -> None:
        """``load_deadline`` is the time limit for loading the tokenizer, in seconds."""
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
        """Process id of the prompt process, if one was started."""
        return self._child.pid

    async def start(self) -> None:
        """Start the process. Returns at once; failures are raised by :meth:`ready` and :meth:`prepared`."""
        self._child.start()

    async def ready(self) -> int:
        """Wait until the tokenizer is loaded; return the context length in tokens. Raises :class:`PromptError`."""
        return (await self._child.ready()).context_length

    async def ended(self) -> None:
        """Wait until no more prompts can be prepared. Raises :class:`PromptError` unless :meth:`stop` was called."""
        await self._child.ended()

    def call(self, request: ChatRequest) -> asyncio.Future[PromptReply]:
        """Queue the preparation of the request's prompt; pass the future to :meth:`prepared`.

        Cancelling the future withdraws a preparation that has not begun.
        """
        return self._child.call(Prepare(next(self._numbers), request))

    async def prepared(self, reply: Awaitable[PromptReply]) -> Prepared:
        """Wait for the reply to a :meth:`call`; return the prompt's token ids and the plan for its output.

        Raises :class:`RequestRefused` when this request can't be served, and :class:`PromptError` when none can.
        """
        try:
            prepared = await reply
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
        match prepared:
            case Prepared():
                return prepared
            case PromptRefused(_, problem):
                raise RequestRefused(problem)
            case _:
                raise refuse(ProblemKind.INTERNAL, "The prompt process sent an unexpected reply.")

    async def stop(self) -> None:
        """End the process. Pending calls fail with :class:`PromptError`."""
        await self._child.stop()
