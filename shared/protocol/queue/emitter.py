"""Publishing: the command by which those who hold claims say what is new, and what its answer means."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from shared.protocol.events import encode_frame, entry_head
from shared.protocol.queue.texts import PREFIXES, script_text
from shared.redis import keys
from shared.redis.raw_connection import Argument, pack_arguments, pack_count
from shared.redis.scripts import digest_of

JOB_TTL_MS = 6 * 3_600_000
"""How long (ms) a job may exist at all."""

LINGER_MS = 60_000
"""How long (ms) a journal can be read after its job's end."""


class Lease:
    """A claim that a worker holds: ``attempt`` of ``job``, for the API replica ``reply_to``, who gets the answer."""

    __slots__ = ("arguments", "attempt", "entry", "job", "reply_to")

    def __init__(self, job: str, attempt: int, reply_to: str) -> None:
        self.job = job
        self.attempt = attempt
        self.reply_to = reply_to
        self.entry = entry_head(job, attempt)
        """How its entries in frames begin."""
        self.arguments = pack_arguments(job, attempt)
        """How it is told to the publishing script."""


class StaleClaims(Exception):
    """Nothing was published, because the worker no longer holds the claims on ``jobs``."""

    def __init__(self, jobs: frozenset[str]) -> None:
        super().__init__(f"claims moved on: {', '.join(sorted(jobs))}")
        self.jobs = jobs


class Emitter:
    """Packs what a worker's jobs say, for a store that has run :attr:`loading` before."""

    def __init__(self, model: str, worker: str) -> None:
        """``worker`` holds the claims on jobs of ``model``."""
        self.text = script_text("emit")
        self.loading = ("SCRIPT", "LOAD", self.text)
        names = (keys.inflight(model), keys.load(model))
        head = ("EVALSHA", digest_of(self.text), len(names), *names, *PREFIXES, worker, JOB_TTL_MS, LINGER_MS)
        self._head, self._head_length = pack_arguments(*head), len(head)

    def command(
        self,
        said: Mapping[Lease, Sequence[bytes]],
        *,
        ended: Container[Lease] = (),
        load: float | None = None,
    ) -> tuple[bytes, tuple[str, ...]]:
        """Return the packed command that journals what was ``said``, encoded events, and sends each API replica its own
        in one frame, atomically, and the replicas; the jobs among ``ended`` end with it, and the worker's ``load``
        is told, if it is to be. :meth:`receipt` reads the answer.

        The hot path: its loop runs once a token. A claim's own part is packed once for all of them.
        """
        plain: list[bytes] = []
        others: list[Argument] = []
        entries: dict[str, list[bytes]] = {}
        for lease, events in said.items():
            if events:
                frame = entries.get(lease.reply_to)
                if frame is None:
                    frame = entries[lease.reply_to] = []
                for event in events:
                    frame += (lease.entry, event)
            final = lease in ended
            if final or len(events) != 1:
                others += (lease.job, lease.attempt, int(final), len(events), *events)
            else:
                (event,) = events
                # As pack_arguments() would pack it, which takes a call and an allocation more.
                plain += (lease.arguments, b"$%d\r\n%b\r\n" % (len(event), event))
        frames: list[Argument] = []
        for replica, frame in entries.items():
            frames += (keys.replica_channel(replica), encode_frame(frame))
        shape = ("" if load is None else load, len(entries), len(plain) // 2)
        parts = [self._head, pack_arguments(*shape, *frames), *plain]
        if others:
            parts.append(pack_arguments(*others))
        count = self._head_length + len(shape) + len(frames) + len(plain) // 2 * 3 + len(others)
        return b"".join((pack_count(count), *parts)), tuple(entries)

    @staticmethod
    def receipt(answer: Any) -> Sequence[int]:
        """Return how many receivers the frame of each replica had: 0 means that the replica is gone.

        Raises :class:`StaleClaims`, nothing having been done, when a claim has moved to another worker, and
        :class:`redis.exceptions.RedisError` when that is the answer.
        """
        if isinstance(answer, RedisError):
            raise answer
        if answer[0] == 0:
            raise StaleClaims(frozenset(job.decode() for job in answer[1:]))
        receivers: list[int] = answer[1:]
        return receivers
