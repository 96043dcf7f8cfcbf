"""The command pipeline: concurrent commands over one connection to the store, and a redis-py client on top of it.

redis-py takes a connection out of a pool and starts a timer for each command. Here all commands share one connection,
where replies arrive in the order of the commands, and one timer. Large commands share another one, so that no command
waits for the transfer of a large one. Pipelines, transactions and subscriptions, which need a dedicated connection,
still use the pool.
"""

import asyncio
import time
from collections import deque
from typing import Any

from arq.connections import ArqRedis
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.exceptions import ConnectionError, InvalidResponse, NoScriptError, RedisError, TimeoutError
from redis.typing import ScriptTextT

from shared.redis.pool_connection import reopen, takes_no_writes
from shared.redis.raw_connection import Argument, RawConnection
from shared.redis.reconnections import Reconnections

_CLOSED = "the connection to the store was closed"

_LARGE = 64 * 1024
"""Size in bytes of an argument that makes a command a large one."""


class CommandPipeline:
    """Sends commands over one connection, opened on demand, and gives each caller the reply to its command."""

    def __init__(
        self, connection: RawConnection, *, timeout: float, reconnections: Reconnections | None = None
    ) -> None:
        """``timeout`` is how many seconds a command waits for its reply while no bytes move on the connection."""
        self._connection = connection
        self._reconnections = reconnections or Reconnections()
        self._reconnections.add_connection(self._renew)
        self._stale = False
        """Whether to connect again as soon as no command waits for its reply."""
        self._opened = False
        """Whether it has been open before."""
        self._timeout = timeout
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        """The futures of commands without a reply, in order, and when each was sent (monotonic seconds)."""
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def execute(self, *command: Argument) -> Any:
        """Send ``command`` and return its reply.

        Raises redis-py's exception for an error reply, :class:`ConnectionError` or :class:`OSError` when the store is
        unreachable or the connection breaks, and :class:`TimeoutError` when the reply takes too long. The command may
        have been executed nevertheless.
        """
        if self._stale and not self._waiting:
            self._connection.close()
        if not self._connection.is_open:
            await self._ensure_open()
        try:
            self._connection.send(*command)
        except ConnectionError as error:
            self._disconnect(error)
            raise
        loop = asyncio.get_running_loop()
        reply = loop.create_future()
        self._waiting.append((reply, time.monotonic()))
        if self._timer is None:
            self._timer = loop.call_later(self._timeout, self._check_timeout)
        return await reply

    def close(self) -> None:
        """Close the connection. Commands without a reply fail with :class:`ConnectionError`."""
        if self._opening is not None:
            self._opening.cancel()
        self._close(ConnectionError(_CLOSED))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _ensure_open(self) -> None:
        """Wait for the connection, which concurrent callers open only once."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="connection to the store")
            self._opening.add_done_callback(self._end_opening)
        opening = self._opening
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                raise ConnectionError(_CLOSED) from None
            raise

    async def _open(self) -> None:
        self._stale = False
        await self._connection.open()
        if self._opened:
            self._reconnections.opened()
        self._opened = True
        self._connection.watch(self._deliver)

    def _end_opening(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # marks it as retrieved: waiting callers have it, and without any it needs no warning

    def _deliver(self) -> None:
        """Complete the futures of the replies that have arrived."""
        try:
            replies = self._connection.replies()
        except RedisError as error:
            self._disconnect(error)
            return
        for reply in replies:
            if not self._waiting:
                self._disconnect(InvalidResponse("the store sent an unexpected reply"))
                return
            waiting, _ = self._waiting.popleft()
            if waiting.done():
                continue  # cancelled
            if not isinstance(reply, Exception):
                waiting.set_result(reply)
            elif takes_no_writes(reply):
                # No longer the master, or about to be replaced. A retry connects to the new one.
                waiting.set_exception(ConnectionError(f"the store takes no writes: {reply}"))
                self._disconnect(ConnectionError("the store takes no writes"))
                return
            else:
                waiting.set_exception(reply)

    def _check_timeout(self) -> None:
        """Break the connection when the oldest command has exceeded the timeout. A transfer in progress has not."""
        self._timer = None
        if not self._waiting:
            return
        quiet_since = max(self._waiting[0][1], self._connection.moved_at)
        remaining = quiet_since + self._timeout - time.monotonic()
        if remaining > 0:
            self._timer = asyncio.get_running_loop().call_later(remaining, self._check_timeout)
        else:
            self._disconnect(TimeoutError("the store does not reply"))

    def _renew(self) -> None:
        """Connect again, because another connection was lost."""
        self._stale = True

    def _disconnect(self, error: Exception) -> None:
        self._close(error)
        self._reconnections.lost(by=self._renew)

    def _close(self, error: Exception) -> None:
        self._connection.close()
        waiting, self._waiting = self._waiting, deque()
        for reply, _ in waiting:
            if not reply.done():
                reply.set_exception(error)


class PipelinedRedis(ArqRedis):
    """redis-py's client, with single commands sent through a :class:`CommandPipeline`."""

    def __init__(
        self,
        pool: ConnectionPool,
        pipeline: CommandPipeline,
        bulk: CommandPipeline,
        *,
        reconnections: Reconnections,
        retry: Retry,
    ) -> None:
        """``pool`` serves commands that need a dedicated connection, ``bulk`` large commands.

        A command that fails because of its connection is retried immediately, and then according to ``retry``.
        """
        super().__init__(pool_or_conn=pool)
        self._command_pipeline = pipeline
        self._bulk = bulk
        self._retry_policy = retry
        self._loaded: dict[str, ScriptTextT] = {}
        """Scripts by digest, as far as they were loaded."""
        reconnections.add_subscription(lambda: reopen(pool))

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Return a command's reply, converted by redis-py. Raises what :meth:`CommandPipeline.execute` raises."""
        name = args[0]
        if " " in name:
            # The server expects two words, such as SCRIPT LOAD, as two arguments.
            args = (*name.split(), *args[1:])
        is_large = any(type(argument) is bytes and len(argument) > _LARGE for argument in args)
        pipeline = self._bulk if is_large else self._command_pipeline
        try:
            reply = await pipeline.execute(*args)
        except (ConnectionError, TimeoutError):
            reply = await self._retry_policy.call_with_retry(lambda: pipeline.execute(*args), _give_up)
        # Only used by redis-py's client-side cache, which is off.
        options.pop("keys", None)
        if name in self.response_callbacks:
            return self.response_callbacks[name](reply, **options)
        return reply

    async def script_load(self, script: ScriptTextT) -> Any:
        """Load a script, and remember it for :meth:`evalsha`."""
        digest = await self.execute_command("SCRIPT LOAD", script)
        self._loaded[digest] = script
        return digest

    async def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any:
        """Run a loaded script. It is loaded once more where another server has become the master since."""
        try:
            return await self.execute_command("EVALSHA", sha, numkeys, *keys_and_args)
        except NoScriptError:
            if sha not in self._loaded:
                raise
            await self.script_load(self._loaded[sha])
            return await self.execute_command("EVALSHA", sha, numkeys, *keys_and_args)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the pipelines, and the pool as redis-py does."""
        self._command_pipeline.close()
        self._bulk.close()
        await super().aclose(close_connection_pool)


async def _give_up(error: Exception) -> None:
    """Do nothing between retries: the connection is reopened on demand."""
