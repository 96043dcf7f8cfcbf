"""Two fleets in two databases of one store, with the same worker id. Pub/sub is not per database."""

import json

import redis

from tests.support.fleet import SIMULATED, Fleet
from tests.support.redis_types import at_once

ID = "w1"


class Database:
    """One of the databases, with a worker and a replica."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        self.url = fleet.url.removesuffix("/0") + f"/{number}"
        # A worker that polls seldom depends on its wake-ups.
        fleet.start("worker", *SIMULATED, "--worker-id", ID, "--poll", "100", "--redis-url", self.url)
        fleet.until(lambda: self.status == "serving", "the worker to serve")
        fleet.api("--redis-url", self.url)
        self.port = fleet.port

    @property
    def worker(self) -> dict[str, object]:
        with redis.Redis.from_url(self.url) as client:
            return dict(json.loads(at_once(client.get(f"vinoqueue:worker:{ID}")) or "{}"))

    @property
    def status(self) -> object:
        return self.worker.get("status")

    def chat(self) -> int:
        body = {"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 20}
        return self.fleet.request("POST", "/v1/chat/completions", json.dumps(body), port=self.port)[0]


def test_messages_and_drains_stay_in_their_database(patient_fleet: Fleet) -> None:
    zero, one = (Database(patient_fleet, number) for number in range(2))
    assert [zero.chat(), one.chat()] == [200, 200]
    with zero.fleet.redis() as client:
        channels = {name.decode() for name in at_once(client.pubsub_channels("vinoqueue:*"))}
        receivers = {at_once(client.publish(channel, "wake" if ID in channel else b"")) for channel in channels}
    assert len(channels) == 4
    assert receivers == {1}
    assert {channel.partition(":")[2].partition(":")[0] for channel in channels} == {
        *("to-worker", "to-replica"),  # database 0: as in earlier releases
        *("to-worker@1", "to-replica@1"),
    }
    code, text = zero.fleet.command("worker", "drain", ID, "--redis-url", zero.url)
    assert code == 0, text
    assert zero.status == "draining"
    assert one.chat() == 200
    assert one.status == "serving"
