"""Many questions to the store at a time over one line, and redis-py's commands on top of it.

redis-py takes a connection out of a pool for each command, and bounds the time of each answer by a timer. Here commands
follow each other on one connection, in the order in which they are asked, and one timer watches them all. What needs a
connection for itself (pipelines, transactions, subscriptions) still takes one out of the pool.
"""

import asyncio
from collections import deque
from typing import Any

from arq.connections import ArqRedis
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.exceptions import ConnectionError, InvalidResponse, ReadOnlyError, RedisError, TimeoutError

from shared.redis.raw_connection import Argument, RawConnection

_CLOSED = "the connection to the store was closed"


class CommandPipeline:
    """Asks over a line that is opened when needed; each answer wakes the one who asked for it, and nobody else."""

    def __init__(self, line: RawConnection, *, patience: float) -> None:
        """``patience`` is how many seconds the store may take for an answer."""
        self._connection = line
        self._patience = patience
        self._asked: deque[tuple[asyncio.Future[Any], float]] = deque()
        """Who waits for an answer, in the order of the questions, and since when (the event loop's seconds)."""
        self._opening: asyncio.Task[None] | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def ask(self, *command: Argument) -> Any:
        """Return the store's answer to ``command``.

        Raises what the store answers if that is an error, as redis-py names it; :class:`ConnectionError` or
        :class:`OSError` when the store can't be reached or the connection breaks, and :class:`TimeoutError` when the
        store takes too long. The command may have been carried out all the same then.
        """
        if not self._connection.is_open:
            await self._opened()
        try:
            self._connection.send(*command)
        except ConnectionError as error:
            self._break(error)
            raise
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._asked.append((answer, loop.time()))
        if self._watch is None:
            self._watch = loop.call_later(self._patience, self._look)
        return await answer

    def close(self) -> None:
        """Close the line; whoever still waits gets a :class:`ConnectionError`."""
        if self._opening is not None:
            self._opening.cancel()
        self._break(ConnectionError(_CLOSED))
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def _opened(self) -> None:
        """Open the line, once for all who need it."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="line to the store")
            self._opening.add_done_callback(self._end_opening)
        opening = self._opening
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise ConnectionError(_CLOSED) from None
            raise

    async def _open(self) -> None:
        await self._connection.open()
        self._connection.watch(self._take)

    def _end_opening(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # whoever waited has it; if all have gone, it is not worth a warning

    def _take(self) -> None:
        """Hand out the answers that have come."""
        try:
            answers = self._connection.answers()
        except RedisError as error:
            self._break(error)
            return
        for answer in answers:
            if not self._asked:
                self._break(InvalidResponse("the store says what it was not asked"))
                return
            asked, _ = self._asked.popleft()
            if asked.done():
                continue  # given up
            if not isinstance(answer, Exception):
                asked.set_result(answer)
            elif isinstance(answer, ReadOnlyError):
                # It is no master any more: whoever asks again finds the new one.
                asked.set_exception(ConnectionError(f"the store has become a replica: {answer}"))
                self._break(ConnectionError("the store has become a replica"))
                return
            else:
                asked.set_exception(answer)

    def _look(self) -> None:
        """See whether the oldest question has waited too long."""
        self._watch = None
        if not self._asked:
            return
        loop = asyncio.get_running_loop()
        rest = self._asked[0][1] + self._patience - loop.time()
        if rest > 0:
            self._watch = loop.call_later(rest, self._look)
        else:
            self._break(TimeoutError("the store does not answer"))

    def _break(self, error: Exception) -> None:
        self._connection.close()
        asked, self._asked = self._asked, deque()
        for answer, _ in asked:
            if not answer.done():
                answer.set_exception(error)


class PipelinedRedis(ArqRedis):
    """redis-py's client, but single commands go over one line."""

    def __init__(self, pool: ConnectionPool, asker: CommandPipeline, *, again: Retry) -> None:
        """``pool`` is for what needs a connection for itself. A command that fails for the connection's sake is tried
        once more at once, and then as ``again`` says."""
        super().__init__(pool_or_conn=pool)
        self._asker = asker
        self._again = again

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Return the answer to a command as redis-py hands it out; raises what :meth:`CommandPipeline.ask` raises."""
        name = args[0]
        if " " in name:
            # Two words, such as SCRIPT LOAD, which the server wants apart.
            args = (*name.split(), *args[1:])
        try:
            answer = await self._asker.ask(*args)
        except (ConnectionError, TimeoutError):
            answer = await self._again.call_with_retry(lambda: self._asker.ask(*args), _give_up)
        # It tells redis-py's cache which keys are concerned; there is none.
        options.pop("keys", None)
        if name in self.response_callbacks:
            return self.response_callbacks[name](answer, **options)
        return answer

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the line, and the pool as redis-py does."""
        self._asker.close()
        await super().aclose(close_connection_pool)


async def _give_up(error: Exception) -> None:
    """Nothing to do between two tries: the line is open again when it is needed."""
