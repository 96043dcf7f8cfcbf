"""A child process that is asked one question at a time, each bounded in time; replaced when it hangs or dies.

:class:`WorkerSubprocess` is the supervisor's end, :func:`serve_requests` the child's.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from worker.ipc import Child, ChildChannel

_MOST_CRASHES = 2
"""The first one may be no fault of the question: the child may have been dying already."""

Call = TypeVar("Call")
Reply = TypeVar("Reply")
Ready = TypeVar("Ready")


class LoadFailed(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The child's first and last message when it can't load its tokenizer."""

    message: str


class SubprocessUnavailable(Exception):
    """The child can't be loaded, or has been stopped; that says nothing about the question."""


class SubprocessTimeout(Exception):
    """The answer did not come in time."""


class SubprocessCrashed(Exception):
    """The child died of the question as many ``times`` as it was asked."""

    def __init__(self, times: int) -> None:
        super().__init__(f"the child process died of the question {times} times")
        self.times = times


class _PendingCall(Generic[Call, Reply]):
    """A question on its way through the process."""

    def __init__(self, question: Call) -> None:
        self.question = question
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.crashes = 0

    def deliver(self, answer: Reply) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
            self.answer.exception()  # looked at: whoever asked may have lost interest, which is no fault to tell of


class WorkerSubprocess(Generic[Call, Reply, Ready]):
    """Puts questions to a child process, one after the other, in order of arrival.

    The child gets one question at a time, so the one in hand is known when it hangs or crashes. A question that takes
    longer than ``deadline`` seconds is given up and the child replaced; after a crash it is asked once more. Those
    behind it wait for the new child.
    """

    def __init__(
        self,
        module: str,
        options: msgspec.Struct,
        decoder: msgspec.msgpack.Decoder[Reply],
        *,
        name: str,
        ready: type[Ready],
        deadline: float,
        load_deadline: float = 120.0,
        unavailable: type[SubprocessUnavailable] = SubprocessUnavailable,
    ) -> None:
        """``module`` gets ``options`` as JSON on its command line, and says ``ready`` or :class:`LoadFailed` first.

        ``name`` is what errors call the child, ``unavailable`` what they are where it can't be asked at all, and
        ``load_deadline`` how many seconds loading may take.
        """
        self._module = module
        self._arguments = [msgspec.json.encode(options).decode()]
        self._decoder = decoder
        self._name = name
        self._ready = ready
        self._deadline = deadline
        self._load_deadline = load_deadline
        self._unavailable = unavailable
        self._waiting: deque[_PendingCall[Call, Reply]] = deque()
        self._in_hand: _PendingCall[Call, Reply] | None = None
        self._patience: asyncio.TimerHandle | None = None
        """Runs while there is a question in hand."""
        self._child: Child[Reply, Call] | None = None
        self._listening = False
        """Whether the present child is loaded, and takes questions."""
        self._loaded: asyncio.Future[Ready] | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: SubprocessUnavailable | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the present child, if there has been one."""
        return self._child.pid if self._child else None

    @property
    def running(self) -> bool:
        """Whether it has been started, and has neither failed nor been stopped since."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Start the process, for the first time or after a failure; returns at once.

        Failures come out of :meth:`ready`, :meth:`ended` and :meth:`ask`.
        """
        self._failure = None
        self._loaded = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def ready(self) -> Ready:
        """Wait until the first child is loaded; return its message. Raises :class:`SubprocessUnavailable`."""
        if self._loaded is None:
            raise self._unavailable(f"the {self._name} has not been started")
        return await asyncio.shield(self._loaded)

    async def ended(self) -> None:
        """Wait until the subprocess takes no more calls. Raises :class:`SubprocessUnavailable` unless stopped."""
        if self._task is None:
            raise self._unavailable(f"the {self._name} has not been started")
        await asyncio.wait([self._task])
        if self._failure is not None:
            raise self._failure

    def ask(self, question: Call) -> asyncio.Future[Reply]:
        """Ask at once, and return what becomes the child's answer; cancelled in time, it is not asked for.

        It fails with :class:`SubprocessTimeout`, :class:`SubprocessCrashed` or, when the subprocess takes no calls,
        :class:`SubprocessUnavailable`.
        """
        asked: _PendingCall[Call, Reply] = _PendingCall(question)
        if self.running:
            self._waiting.append(asked)
            self._ask_next()
        else:
            asked.fail(self._unavailable(f"the {self._name} is not running"))
        return asked.answer

    async def stop(self) -> None:
        """End the process; whoever still waits gets :class:`SubprocessUnavailable`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        reason = self._unavailable(f"the {self._name} has been stopped")
        try:
            while True:
                await self._serve_one_child()
        except SubprocessUnavailable as error:
            reason = self._failure = error
        finally:
            if self._child is not None:
                await self._child.stop()
            self._give_up(reason)

    def _give_up(self, reason: SubprocessUnavailable) -> None:
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(reason)
            # Nobody need be waiting for it: then the exception is not lost, it comes out of ask().
            self._loaded.exception()
        if (asked := self._put_down()) is not None:
            asked.fail(reason)
        while self._waiting:
            self._waiting.popleft().fail(reason)

    async def _serve_one_child(self) -> None:
        """Start a child and serve calls until it ends. Raises :class:`SubprocessUnavailable` if it does not load."""
        child: Child[Reply, Call] = Child(self._module, self._arguments, self._decoder)
        self._child = child
        try:
            await child.start()
        except OSError as error:
            raise self._unavailable(f"the {self._name} can't be started: {error}") from error
        first: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def hear(answer: Reply) -> None:
            if not first.done():
                first.set_result(answer)
            else:
                self._answered(answer)

        life = asyncio.create_task(child.listen(hear))
        try:
            await self._load(first, life)
            self._listening = True
            self._ask_next()
            await life
            if (asked := self._put_down()) is not None:
                self._crashed(asked)
        finally:
            self._listening = False
            life.cancel()
            child.kill()
            await child.stop()

    async def _load(self, first: "asyncio.Future[Reply]", life: "asyncio.Task[None]") -> None:
        either: list[asyncio.Future[Any]] = [first, life]
        await asyncio.wait(either, timeout=self._load_deadline, return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            if life.done():
                raise self._unavailable(f"the {self._name} died while it loaded the tokenizer")
            raise self._unavailable(f"the tokenizer was not loaded within {self._load_deadline:g} s")
        message = first.result()
        if isinstance(message, LoadFailed):
            raise self._unavailable(message.message)
        if not isinstance(message, self._ready):
            raise self._unavailable(f"the {self._name} said {type(message).__name__} before it was ready")
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_result(message)

    def _ask_next(self) -> None:
        """Give the child the next question whose answer somebody still waits for, unless it has one in hand."""
        if not self._listening or self._in_hand is not None or self._child is None:
            return
        while self._waiting:
            asked = self._waiting.popleft()
            if not asked.answer.done():
                self._in_hand = asked
                self._patience = asyncio.get_running_loop().call_later(self._deadline, self._too_slow)
                self._child.send(asked.question)
                return

    def _answered(self, answer: Reply) -> None:
        # One that was given up may answer while it is being killed.
        if (asked := self._put_down()) is not None:
            asked.deliver(answer)
            self._ask_next()

    def _too_slow(self) -> None:
        if (asked := self._put_down()) is not None:
            asked.fail(SubprocessTimeout(f"the {self._name} gave no answer within {self._deadline:g} s"))
        self._listening = False
        if self._child is not None:
            self._child.kill()

    def _put_down(self) -> _PendingCall[Call, Reply] | None:
        """Return the question in hand, which is in hand no more."""
        asked, self._in_hand = self._in_hand, None
        if self._patience is not None:
            self._patience.cancel()
        return asked

    def _crashed(self, asked: _PendingCall[Call, Reply]) -> None:
        asked.crashes += 1
        if asked.crashes < _MOST_CRASHES:
            self._waiting.appendleft(asked)
        else:
            asked.fail(SubprocessCrashed(asked.crashes))


def serve_requests(channel: ChildChannel[Call, Reply], answer: Callable[[Call], Reply]) -> int:
    """In the child: answer questions until the parent closes the channel. Returns the exit code."""
    while True:
        try:
            questions = channel.receive(None)
        except EOFError:
            return 0
        for question in questions:
            channel.send(answer(question))
