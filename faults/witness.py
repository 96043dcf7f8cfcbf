"""A listener on the channels to the API replicas: it sees whether two attempts at one job ever publish in turns."""

import asyncio

import redis
import redis.asyncio

from faults.service import Service
from shared.protocol.events import TERMINAL, Entry, decode_frame
from shared.redis.keys import replica_channel


class Attempts:
    """Notes attempts that speak after a later one has begun, and jobs that end twice."""

    def __init__(self) -> None:
        self._attempts: dict[str, int] = {}
        self._ended: set[str] = set()
        self.complaints: list[str] = []

    def note(self, entry: Entry) -> None:
        """Look at one event."""
        newest = self._attempts.get(entry.job, 0)
        if entry.attempt < newest:
            self.complaints.append(f"job {entry.job}: attempt {entry.attempt} published after attempt {newest}")
        if entry.job in self._ended:
            self.complaints.append(f"job {entry.job}: attempt {entry.attempt} published after its end")
        self._attempts[entry.job] = max(newest, entry.attempt)
        if isinstance(entry.event, TERMINAL):
            self._ended.add(entry.job)


class Witness(Attempts):
    """Records every frame that is published while it runs."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service

    async def run(self) -> None:
        """Listen until cancelled; the store may come and go."""
        while True:
            port = self._service.redis().connection_pool.connection_kwargs["port"]
            client = redis.asyncio.Redis(port=port)
            try:
                async with client.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.psubscribe(replica_channel("*"))
                    async for message in pubsub.listen():
                        for entry in decode_frame(message["data"]):
                            self.note(entry)
            except (redis.RedisError, OSError):
                await asyncio.sleep(0.1)
            finally:
                await client.aclose()
