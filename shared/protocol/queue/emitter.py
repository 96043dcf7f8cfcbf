"""The emitter: makes the command that publishes and journals events of a worker's jobs, and reads its reply."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha1
from typing import Any

from redis.exceptions import RedisError

from shared.protocol.events import FrameOnly, encode_frame, entry_head
from shared.protocol.queue.texts import queue_keys, script_text
from shared.redis import keys
from shared.redis.raw_connection import Argument

_MAX_LOG = 16
"""Steps in a log from which on it is moved to the journals."""

_MAX_FRAME = 2**20
"""Bytes from which on events go into another frame. A larger one has a single event."""


class Lease:
    """A worker's lease of ``job`` for ``attempt``. Events go to the API replica ``reply_to``."""

    __slots__ = ("attempt", "entry", "head", "job", "reply_to", "usage")

    def __init__(self, job: str, attempt: int, reply_to: str) -> None:
        self.job = job
        self.attempt = attempt
        self.reply_to = reply_to
        self.entry = entry_head(job, attempt)
        """The encoded head of the job's entries in frames."""
        self.head = f"{job} {attempt} ".encode()
        """What precedes the size of an event in the log of steps."""
        self.usage = "0"
        """What the job has used when it ends (:meth:`shared.protocol.usage.UsageCounts.encode`)."""


class StaleClaims(Exception):
    """Nothing was published, because the worker no longer holds leases, ``(job, attempt)``."""

    def __init__(self, claims: frozenset[tuple[str, int]]) -> None:
        super().__init__(f"leases lost: {sorted(claims)}")
        self.claims = claims


class Emitter:
    """Makes publish commands. :attr:`load_command` must run before them, once per connection."""

    def __init__(self, model: str, worker: str, database: int = 0) -> None:
        """``worker`` is the id of a worker of ``model``, ``database`` the number of the store's database."""
        self._database = database
        self.text = script_text("emit", database)
        self.load_command = ("SCRIPT", "LOAD", self.text)
        names, digest = queue_keys(model), sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        self._head: tuple[Argument, ...] = ("EVALSHA", digest, len(names), *names, worker)
        self._number = 0
        self._last = ""
        """Number of the last command that the store has confirmed; empty if it must check all leases."""
        self._log: dict[Lease, tuple[bytes, ...]] = {}
        """The leases that the store has checked, and the events of each that are in the log of steps."""
        self._length = 0
        self._sent = self._last, self._length, self._log
        """What the last command makes of these."""

    def command(
        self,
        events_by_lease: Mapping[Lease, Sequence[bytes]],
        *,
        ended: Collection[Lease] = (),
        load: float | None = None,
    ) -> tuple[Sequence[Argument], Sequence[str]]:
        """Return the command that publishes encoded events, and the replica of each frame.

        The command atomically publishes frames for each replica, keeps the events, deletes the jobs in ``ended``, notes
        their usage, and sets the worker's ``load`` unless it is ``None``. A job's first events go to its journal, later
        ones to the log of steps, in one write for all jobs. From there they go to the journals, without any that is
        :class:`FrameOnly`: those of a job when it ends, and all when the log is long. :meth:`parse_reply` must read the
        reply. This is the hot path: the loop runs once per token.
        """
        log = self._log
        over = all(lease in ended for lease in (*log, *events_by_lease))
        full = over or not self._last or self._length >= _MAX_LOG
        after = {} if full else log.copy()
        step: list[bytes] = []
        journalled: dict[Lease, Sequence[bytes]] = dict.fromkeys(log, ()) if full else {}
        entries: dict[str, list[bytes]] = {}
        for lease, events in events_by_lease.items():
            if events:
                frame = entries.setdefault(lease.reply_to, [])
                for event in events:
                    frame += (lease.entry, event)
            if lease not in after or lease in ended:
                journalled[lease] = events
            else:
                after[lease] += (*events,)
                for event in events:
                    step += (lease.head, b"%d\n" % len(event), event)
        others: list[Argument] = []
        for lease, events in journalled.items():
            after[lease] = ()
            kept = [event for event in (*log.get(lease, ()), *events) if type(event) is not FrameOnly]
            others += (lease.job, lease.attempt, lease.usage if lease in ended else "", len(kept), *kept)
        frames: list[Argument] = []
        replicas: list[str] = []
        for replica, frame in entries.items():
            for part in (frame,) if sum(map(len, frame)) <= _MAX_FRAME else _parts(frame):
                frames += (keys.replica_channel(replica, self._database), encode_frame(part))
                replicas.append(replica)
        self._number += 1
        last, this = "" if full else self._last, "" if over else str(self._number)
        for lease in ended:
            after.pop(lease, None)
        self._sent = this, 0 if full else self._length + bool(step), after
        head = (*self._head, "" if load is None else load, len(replicas), last, this, b"".join(step))
        return (*head, *frames, *others), replicas

    def parse_reply(self, reply: Any) -> Sequence[int]:
        """Return the number of receivers of each replica's frame.

        Raises :class:`StaleClaims` when nothing was published, because a lease has moved to another worker or the store
        can't tell, and :class:`redis.exceptions.RedisError` when that is the reply.
        """
        if isinstance(reply, RedisError):
            raise reply
        length: int = reply[0]
        receivers: list[Any] = reply[1:]
        if length < 0:
            stale = frozenset(zip(map(bytes.decode, receivers[::2]), map(int, receivers[1::2]), strict=True))
            self._log = {one: log for one, log in self._log.items() if (one.job, one.attempt) not in stale}
            self._last = ""
            raise StaleClaims(stale)
        self._last, expected, log = self._sent
        if length < expected:  # somebody has moved what was logged before (see journals.lua)
            log = {lease: events[len(self._log.get(lease, ())) :] for lease, events in log.items()}
        self._log, self._length = log, length
        return receivers


def _parts(frame: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the entries of a frame, heads and events, in parts of limited size."""
    part: list[bytes] = []
    size = 0
    for at in range(0, len(frame), 2):
        if part and size + len(frame[at + 1]) > _MAX_FRAME:
            yield part
            part, size = [], 0
        part += frame[at : at + 2]
        size += len(frame[at + 1])
    yield part
