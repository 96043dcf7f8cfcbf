"""The prompt process as the supervisor sees it: bounded in time, replaced when it hangs or dies."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import count

import msgspec

from shared.errors import ProblemKind, RequestRefused, refuse
from shared.request import ChatRequest
from worker.ipc import Child
from worker.prompt.interface import (
    Answer,
    Prepare,
    Prepared,
    PromptLoadFailed,
    PromptOptions,
    PromptReady,
    Unfit,
)

MODULE = "worker.prompt.child"
_MOST_CRASHES = 2


class PromptError(Exception):
    """The prompt process can't be started, or has been stopped; no request can be prepared."""


class _Waiting:
    """A request on its way through the process."""

    def __init__(self, number: int, request: ChatRequest) -> None:
        self.number = number
        self.request = request
        self.prepared: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
        self.crashes = 0

    def refuse(self, refusal: Exception) -> None:
        if not self.prepared.done():
            self.prepared.set_exception(refusal)


class PromptProcess:
    """Prepares prompts in a child process, one after the other, in order of arrival.

    The child gets one request at a time, so the one in hand is known when it hangs or crashes. A request that takes
    longer than ``deadline`` seconds is refused and the child replaced; after a crash it is tried once more. The
    requests behind it wait for the new child.
    """

    def __init__(
        self, options: PromptOptions, *, deadline: float = 10.0, load_deadline: float = 120.0, module: str = MODULE
    ) -> None:
        """``load_deadline`` is how many seconds loading the tokenizer may take."""
        self._options = options
        self._deadline = deadline
        self._load_deadline = load_deadline
        self._module = module
        self._numbers = count(1)
        self._waiting: deque[_Waiting] = deque()
        self._in_hand: _Waiting | None = None
        self._arrived = asyncio.Event()
        self._child: Child[Answer, Prepare] | None = None
        self._loaded: asyncio.Future[int] | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: PromptError | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the present child."""
        return self._child.pid if self._child else None

    async def start(self) -> None:
        """Start the process; returns at once. Failures come out of :meth:`ready` and :meth:`prepare`."""
        self._loaded = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name="prompt process")

    async def ready(self) -> int:
        """Wait until the tokenizer is loaded; return the context length in tokens. Raises :class:`PromptError`."""
        if self._loaded is None:
            raise PromptError("the prompt process has not been started")
        return await asyncio.shield(self._loaded)

    async def ended(self) -> None:
        """Wait until no more prompts can be prepared. Raises :class:`PromptError` unless :meth:`stop` was called."""
        if self._task is None:
            raise PromptError("the prompt process has not been started")
        await asyncio.wait([self._task])
        if self._failure is not None:
            raise self._failure

    async def prepare(self, request: ChatRequest) -> Prepared:
        """Return the token ids of the request's prompt, and the plan for its answer.

        Raises :class:`shared.errors.RequestRefused` when the request can't be served, and :class:`PromptError` when
        no request can.
        """
        if self._task is None or self._task.done():
            raise PromptError("the prompt process is not running")
        waiting = _Waiting(next(self._numbers), request)
        self._waiting.append(waiting)
        self._arrived.set()
        return await waiting.prepared

    async def stop(self) -> None:
        """End the process; whoever still waits gets :class:`PromptError`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        reason = PromptError("the prompt process has been stopped")
        try:
            while True:
                await self._serve_one_child()
        except PromptError as error:
            reason = self._failure = error
        finally:
            if self._child is not None:
                await self._child.stop()
            self._give_up(reason)

    def _give_up(self, reason: PromptError) -> None:
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(reason)
            # Nobody need be waiting for it: then the exception is not lost, it comes out of prepare().
            self._loaded.exception()
        if self._in_hand is not None:
            self._in_hand.refuse(reason)
        while self._waiting:
            self._waiting.popleft().refuse(reason)

    async def _serve_one_child(self) -> None:
        """Start a child and serve until it dies or is killed. Raises :class:`PromptError` when it can't be loaded."""
        arguments = [msgspec.json.encode(self._options).decode()]
        self._child = Child(self._module, arguments, msgspec.msgpack.Decoder(Answer))
        try:
            await self._child.start()
        except OSError as error:
            raise PromptError(f"the prompt process can't be started: {error}") from error
        messages = self._child.messages()
        await self._load(messages)
        incoming = asyncio.create_task(_next(messages))
        try:
            while not incoming.done():
                waiting = await self._next_waiting(incoming)
                if waiting is None:
                    break
                self._child.send(Prepare(waiting.number, waiting.request))
                self._in_hand = waiting
                await asyncio.wait([incoming], timeout=self._deadline)
                self._in_hand = None
                if not incoming.done():
                    waiting.refuse(self._too_slow())
                    break
                answer = incoming.result()
                if answer is None:
                    self._crashed(waiting)
                    break
                _deliver(waiting, answer)
                incoming = asyncio.create_task(_next(messages))
        finally:
            incoming.cancel()
            self._child.kill()
            await self._child.stop()

    async def _load(self, messages: AsyncIterator[Answer]) -> None:
        try:
            first = await asyncio.wait_for(_next(messages), self._load_deadline)
        except TimeoutError:
            raise PromptError(f"the tokenizer was not loaded within {self._load_deadline:g} s") from None
        match first:
            case PromptReady(context_length):
                if self._loaded is not None and not self._loaded.done():
                    self._loaded.set_result(context_length)
            case PromptLoadFailed(message):
                raise PromptError(message)
            case _:
                raise PromptError("the prompt process died while it loaded the tokenizer")

    async def _next_waiting(self, incoming: "asyncio.Task[Answer | None]") -> _Waiting | None:
        """Return the next request that somebody still waits for, or None when the child dies first."""
        while not incoming.done():
            while self._waiting:
                waiting = self._waiting.popleft()
                if not waiting.prepared.done():
                    return waiting
            self._arrived.clear()
            arrival = asyncio.create_task(self._arrived.wait())
            try:
                await asyncio.wait([incoming, arrival], return_when=asyncio.FIRST_COMPLETED)
            finally:
                arrival.cancel()
        return None

    def _too_slow(self) -> RequestRefused:
        return refuse(
            ProblemKind.TEMPLATE,
            f"The prompt was not ready within {self._deadline:g} s: the model's chat template takes too long for these "
            "messages.",
            param="messages",
        )

    def _crashed(self, waiting: _Waiting) -> None:
        waiting.crashes += 1
        if waiting.crashes < _MOST_CRASHES:
            self._waiting.appendleft(waiting)
            return
        text = f"Preparing the prompt ended the tokenizer's process {waiting.crashes} times; it is not tried again."
        waiting.refuse(refuse(ProblemKind.POISON, text))


async def _next(messages: AsyncIterator[Answer]) -> Answer | None:
    return await anext(messages, None)


def _deliver(waiting: _Waiting, answer: Answer) -> None:
    match answer:
        case Prepared():
            if not waiting.prepared.done():
                waiting.prepared.set_result(answer)
        case Unfit(_, problem):
            waiting.refuse(RequestRefused(problem))
        case _:
            waiting.refuse(refuse(ProblemKind.INTERNAL, "The prompt process gave an answer that nobody asked for."))
