"""Unreadable records and messages in the store, as another version may write them: each request ends, and the service
goes on."""

import json
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import redis

from api.keys import ApiKey
from api.keys.store import new_key
from shared.protocol.events import encode_frame
from shared.redis import keys
from tests.support.fleet import Fleet
from tests.support.fuzzing import cases
from tests.support.redis_types import at_once

SEED = int(os.environ.get("STORE_FUZZ_SEED", "20260419"))
ROUNDS = cases(6)
LONG = "hello " * 1_000
"""A prompt that several jobs share, and that is routed by its beginning."""

SCALARS: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**63,
    2**53 + 1,
    1e308,
    -0.5,
    "",
    "x",
    "\0",
    "é" * 99,
    "9" * 400,
    [],
    {},
    [[]],
    {"a": []},
)
STRINGS = ("nan", "inf", "-1", "1e400", "x", "", "9" * 30)

Store = redis.Redis
Case = Callable[[random.Random, "Ids"], str]


class Ids:
    """What is in the store at the moment, for keys that name it."""

    def __init__(self, store: Store, key_id: str) -> None:
        self.key_id = key_id
        jobs = [*_names(store, keys.inflight("sim")), *_names(store, keys.queue("sim"))]
        self.jobs = jobs or ["nobody"]
        self.workers = _names(store, keys.WORKERS) or ["nobody"]
        self.replicas = _names(store, keys.REPLICAS) or ["nobody"]
        self.stored = _names(store, keys.stored_index(key_id)) or ["nobody"]
        self.responses = [name for name in self.stored if name.startswith("resp_")] or ["nobody"]


def _names(store: Store, index: str) -> list[str]:
    return [name.decode() for name in at_once(store.zrange(index, 0, -1))]


CASES: dict[str, Case] = {
    "models": lambda _, __: keys.MODELS,
    "keys": lambda _, __: keys.API_KEYS,
    "payload": lambda chance, ids: keys.payload(chance.choice(ids.jobs)),
    "request": lambda chance, ids: keys.request(chance.choice(ids.jobs).rpartition(":")[0]),
    "journal": lambda chance, ids: keys.journal(chance.choice(ids.jobs)),
    "stored": lambda chance, ids: keys.stored(ids.key_id, chance.choice(ids.stored)),
    "stored_journal": lambda chance, ids: keys.stored_journal(ids.key_id, chance.choice(ids.responses)),
    "worker": lambda chance, ids: keys.worker(chance.choice(ids.workers)),
    "replica": lambda chance, ids: keys.replica(chance.choice(ids.replicas)),
    "worker_channel": lambda chance, ids: keys.worker_channel(chance.choice(ids.workers)),
    "replica_channel": lambda chance, ids: keys.replica_channel(chance.choice(ids.replicas)),
}
"""For each kind of record or channel, where to write."""

RECORD_FIELDS = {b"request", b"document", b"input", b"model", b"metadata"}
"""The fields with records of hashes that have other fields, too."""


def garbage(chance: random.Random, valid: bytes = b"") -> bytes:
    """Bytes that are no record, or nearly one."""
    kind = chance.randrange(6)
    if kind == 0:
        return chance.randbytes(chance.randrange(40))
    if kind == 1 and valid:
        return valid[: chance.randrange(len(valid))]
    if kind == 2:
        return msgspec.msgpack.encode(chance.choice(SCALARS))
    if kind == 3:
        return json.dumps(chance.choice(SCALARS)).encode()
    if kind == 4:
        return chance.choice((b"\x91" * 20_000, b"[" * 20_000, b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"))
    return changed(chance, valid)


def changed(chance: random.Random, valid: bytes) -> bytes:
    """A record with one of its values replaced."""
    for decode, encode in ((json.loads, lambda value: json.dumps(value).encode()), _MSGPACK):
        try:
            value = decode(valid)
        except (ValueError, RecursionError):
            continue
        if not isinstance(value, dict | list) or not value:
            continue
        place = value
        while True:
            at = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
            if not (isinstance(place[at], dict | list) and place[at] and chance.random() < 0.7):
                place[at] = chance.choice(SCALARS)
                break
            place = place[at]
        try:
            return encode(value)
        except (OverflowError, msgspec.MsgspecError):
            continue
    return chance.choice(STRINGS).encode()


_MSGPACK: Any = (msgspec.msgpack.decode, msgspec.msgpack.encode)


def spoil(store: Store, key: str, chance: random.Random) -> str:
    """Replace a record under ``key`` with an unreadable one; return what was done."""
    kind = at_once(store.type(key)).decode()
    if kind == "string":
        store.set(key, garbage(chance, at_once(store.get(key)) or b""), keepttl=True, xx=True)
    elif kind == "hash":
        fields = at_once(store.hkeys(key))
        field = chance.choice([one for one in fields if one in RECORD_FIELDS] or fields or [b"request"])
        if valid := at_once(store.hget(key, field)):
            at_once(store.hset(key, mapping={field: garbage(chance, valid)}))
    elif kind == "list" and (valid := at_once(store.lindex(key, -1))):
        with suppress(redis.ResponseError):  # it has ended
            at_once(store.lset(key, -1, garbage(chance, valid)))  # type: ignore[arg-type] # its stub knows only str
    return f"garbage in the {kind} {key}"


def say(store: Store, channel: str, chance: random.Random) -> str:
    """Publish garbage."""
    entry = b"\x93" + msgspec.msgpack.encode("nobody") + garbage(chance)
    payload = chance.choice(
        (garbage(chance), b"wake " + garbage(chance), b"cancel " + chance.randbytes(4), encode_frame([entry, b"\x01"]))
    )
    store.publish(channel, payload)
    return f"{payload[:40]!r} to {channel}"


class Attack:
    """A fleet under attack, and a key with limits to ask it with."""

    def __init__(self, running: Fleet) -> None:
        self.fleet = running
        self.store = running.redis()
        template = ApiKey(id="-", digest="0" * 64, requests_per_minute=10**6, tokens_per_minute=10**9, concurrency=1000)
        self.key, self.secret = new_key(template)
        self.record = msgspec.json.encode(self.key)
        self.write_key()
        running.worker("--engine", "simulated", "--model", "sim", "--sim-step", "0.005", "--max-batch", "3")
        running.api("--queue-timeout", "5", "--request-timeout", "30")
        running.until(lambda: self.ask(tokens=3)[0] == 200, "the first answer")

    def write_key(self) -> None:
        """Undo what was done to the keys: nobody but an operator can."""
        self.store.delete(keys.API_KEYS)
        at_once(self.store.hset(keys.API_KEYS, mapping={self.key.id: self.record}))

    def ask(self, *, tokens: int = 100, **fields: Any) -> tuple[int, bytes]:
        """Ask for an answer of so many tokens, and wait for its end."""
        prompt = f"[[tokens {tokens}]] {fields.pop('prompt', 'hello')}"
        body = {"model": "sim", "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, **fields}
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.secret}"}
        status, _, answer = self.fleet.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        return status, answer

    def respond(self) -> tuple[int, bytes]:
        """Ask for a background response, and follow its stream."""
        body = {"model": "sim", "input": "[[tokens 50]]", "background": True, "stream": True}
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.secret}"}
        status, _, answer = self.fleet.request("POST", "/v1/responses", json.dumps(body), headers)
        return status, answer

    def recall(self) -> None:
        """Read the stored responses, and stream them again."""
        headers = {"authorization": f"Bearer {self.secret}"}
        for response_id in Ids(self.store, self.key.id).responses[-3:]:
            for query in ("", "?stream=true", "/input_items"):
                path = f"/v1/responses/{quote(response_id, safe='')}{query}"
                status, _, answer = self.fleet.request("GET", path, None, headers)
                assert status in (200, 400, 401, 404, 503), answer

    def look(self) -> int:
        """List the stored completions."""
        headers = {"authorization": f"Bearer {self.secret}"}
        return self.fleet.request("GET", "/v1/chat/completions", None, headers)[0]


@pytest.fixture
def attack(empty_fleet: Fleet) -> Iterator[Attack]:
    begun = Attack(empty_fleet)
    yield begun
    begun.store.close()


def check_end(answer: tuple[int, bytes], *, streamed: bool) -> None:
    """Check that an answer came to an end that a client understands."""
    status, body = answer
    if status == 200 and streamed:
        last = body.strip().rsplit(b"\n\n", 1)[-1]
        assert last == b"data: [DONE]" or b'"error"' in last or b'"response"' in last, body[-500:]
    elif status == 200:
        assert json.loads(body)["choices"]
    else:
        assert status in (401, 404, 408, 429, 500, 503, 504), body
        assert json.loads(body)["error"]["message"]


def test_unreadable_records_harm_nobody_for_long(attack: Attack) -> None:
    chance = random.Random(SEED)
    print(f"STORE_FUZZ_SEED={SEED}")
    waiting: list[str] = []
    with ThreadPoolExecutor(8) as clients:
        for number in range(ROUNDS):
            asked: list[tuple[Future[tuple[int, bytes]], bool]] = [
                *((clients.submit(attack.ask, stream=True), True) for _ in range(3)),
                (clients.submit(attack.ask, n=3, prompt=LONG), False),
                (clients.submit(attack.ask, store=True, tokens=20), False),
                (clients.submit(attack.respond), True),
            ]
            in_flight = keys.inflight("sim")
            attack.fleet.until(
                lambda one=in_flight, asked=asked: _names(attack.store, one) or all(one.done() for one, _ in asked),  # type: ignore[misc]
                "claims",
            )
            done = []
            for _ in range(5):
                waiting = waiting or chance.sample(sorted(CASES), len(CASES))
                kind = waiting.pop()
                key = CASES[kind](chance, Ids(attack.store, attack.key.id))
                act = say if kind.endswith("_channel") else spoil
                done.append(act(attack.store, key, chance))
            if number % 2:
                # Subscriptions begin anew, and every journal is read.
                attack.store.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # type: ignore[no-untyped-call]
            print(f"round {number}: {'; '.join(done)}")
            for future, streamed in asked:
                check_end(future.result(), streamed=streamed)
            assert attack.look() in (200, 401, 503)
            attack.recall()
            attack.write_key()
            attack.fleet.until(lambda: attack.ask(tokens=3)[0] == 200, f"another answer after {done}")
            attack.fleet.until(lambda: attack.look() == 200, f"the list of completions after {done}")
            for process in attack.fleet.processes:
                assert process.popen.poll() is None, process.log.read_text()
                log = process.log.read_text()
                assert "background task" not in log, log
                assert "never retrieved" not in log, log
