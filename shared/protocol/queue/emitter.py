"""The emitter: packs the command that publishes and journals events of a worker's jobs, and reads its reply."""

from collections.abc import Container, Iterator, Mapping, Sequence
from hashlib import sha1
from typing import Any

from redis.exceptions import RedisError

from shared.protocol.events import FrameOnly, encode_frame, entry_head
from shared.protocol.queue.texts import queue_keys, script_text
from shared.redis import keys
from shared.redis.raw_connection import Argument, pack_arguments, pack_count

_MAX_FRAME = 2**20
"""Bytes from which on events go into another frame. A larger one has a single event."""


class Lease:
    """A worker's lease of ``job`` for ``attempt``. Events go to the API replica ``reply_to``."""

    __slots__ = ("arguments", "attempt", "entry", "job", "reply_to", "usage")

    def __init__(self, job: str, attempt: int, reply_to: str) -> None:
        self.job = job
        self.attempt = attempt
        self.reply_to = reply_to
        self.entry = entry_head(job, attempt)
        """The encoded head of the job's entries in frames."""
        self.arguments = pack_arguments(job, attempt)
        """Job and attempt, packed for the script."""
        self.usage = "0"
        """What the job has used when it ends (:meth:`shared.protocol.usage.UsageCounts.encode`)."""


class StaleClaims(Exception):
    """Nothing was published, because the worker no longer holds the leases of ``jobs``."""

    def __init__(self, jobs: frozenset[str]) -> None:
        super().__init__(f"leases lost: {', '.join(sorted(jobs))}")
        self.jobs = jobs


class Emitter:
    """Packs publish commands. :attr:`load_command` must run before them, once per connection."""

    def __init__(self, model: str, worker: str, database: int = 0) -> None:
        """``worker`` is the id of a worker of ``model``, ``database`` the number of the store's database."""
        self._database = database
        self.text = script_text("emit", database)
        self.load_command = ("SCRIPT", "LOAD", self.text)
        names = queue_keys(model)
        head: tuple[Argument, ...]
        head = ("EVALSHA", sha1(self.text.encode(), usedforsecurity=False).hexdigest(), len(names), *names, worker)
        self._head, self._head_length = pack_arguments(*head), len(head)

    def command(
        self,
        events_by_lease: Mapping[Lease, Sequence[bytes]],
        *,
        ended: Container[Lease] = (),
        load: float | None = None,
    ) -> tuple[bytes, tuple[str, ...]]:
        """Return the packed command that publishes encoded events, and the replica of each frame.

        The command atomically appends the events to the journals, except for those that are :class:`FrameOnly` and
        precede a job's end, publishes frames for each replica, deletes the jobs in ``ended``, notes their usage, and
        sets the worker's ``load`` unless it is ``None``. :meth:`parse_reply` reads its reply. This is the hot path: the
        loop runs once per token. The part that depends on the lease only is packed once per lease.
        """
        common: list[bytes] = []
        others: list[Argument] = []
        entries: dict[str, list[bytes]] = {}
        for lease, events in events_by_lease.items():
            if events:
                frame = entries.get(lease.reply_to)
                if frame is None:
                    frame = entries[lease.reply_to] = []
                for event in events:
                    frame += (lease.entry, event)
            final = lease in ended
            if final or len(events) != 1:
                kept = [event for event in events if type(event) is not FrameOnly]
                others += (lease.job, lease.attempt, lease.usage if final else "", len(kept), *kept)
            else:
                (event,) = events
                # Inlined pack_arguments(), which saves a call and an allocation.
                common += (lease.arguments, b"$%d\r\n%b\r\n" % (len(event), event))
        frames: list[Argument] = []
        replicas: list[str] = []
        for replica, frame in entries.items():
            for part in (frame,) if sum(map(len, frame)) <= _MAX_FRAME else _parts(frame):
                frames += (keys.replica_channel(replica, self._database), encode_frame(part))
                replicas.append(replica)
        shape = ("" if load is None else load, len(replicas), len(common) // 2)
        parts = [self._head, pack_arguments(*shape, *frames), *common]
        if others:
            parts.append(pack_arguments(*others))
        count = self._head_length + len(shape) + len(frames) + len(common) // 2 * 3 + len(others)
        return b"".join((pack_count(count), *parts)), tuple(replicas)

    @staticmethod
    def parse_reply(reply: Any) -> Sequence[int]:
        """Return the number of receivers of each replica's frame.

        Raises :class:`StaleClaims` when a lease has moved to another worker and nothing was published, and
        :class:`redis.exceptions.RedisError` when that is the reply.
        """
        if isinstance(reply, RedisError):
            raise reply
        if reply[0] == 0:
            raise StaleClaims(frozenset(job.decode() for job in reply[1:]))
        receivers: list[int] = reply[1:]
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
