"""The invariants: what must hold for every history and every fleet, whatever was done to it."""

import json
import math
import struct
from collections import Counter
from collections.abc import Iterable
from itertools import chain

import redis
from openai.types import BatchUsage

from faults.history import Exchange, History
from faults.load import STUCK_TOKENS
from faults.processes import Footprint
from faults.prompts import VECTORS
from faults.scenario import Scenario
from shared.protocol.usage import UsageCounts
from shared.redis import keys
from tests.support.eventually import wait_until
from tests.support.redis_types import at_once, command
from worker.simulated.engine import encode, is_one_sample

LASTING_KEYS = (
    "vinoqueue:workers",
    "vinoqueue:replicas",
    "vinoqueue:nodes",
    "vinoqueue:models",
    "vinoqueue:models-seen",
    "vinoqueue:load:",
    "vinoqueue:files-folder",
)
"""Keys without a TTL that are part of a service at rest: the registry, the workers' load, and where files are."""

_LATENESS = 60
"""Seconds for which the state of a job that was cancelled before it came may be kept."""

_MORE_FILES = 80
"""Open files by which a process may grow: its pool keeps up to 64 connections to the store open."""

_MORE_MEGABYTES = 100


def check_history(history: History, expected: dict[str, str], scenario: Scenario) -> list[str]:
    """Return what is wrong with what clients saw; ``expected`` has the text for each prompt."""
    wrong: list[str] = []
    for exchange in history.exchanges:
        name = f"request {exchange.client}/{exchange.number}"
        wrong += (f"{name}: {one}" for one in _faults_of(exchange, expected, scenario))
    answered = Counter((one.client, one.number) for one in history.exchanges if one.outcome == "completed")
    asked = {(one.client, one.number) for one in history.exchanges if one.client >= 0}
    wrong += (
        f"request {client}/{number} had {times} answers" for (client, number), times in answered.items() if times > 1
    )
    left = {(one.client, one.number) for one in history.exchanges if one.outcome == "aborted"}
    excused = {(one.client, one.number) for one in history.exchanges if _is_excused(one, scenario)}
    missing = sorted(asked - set(answered) - left - excused)
    wrong += (f"request {client}/{number} never got its answer" for client, number in missing)
    return wrong


def _faults_of(exchange: Exchange, expected: dict[str, str], scenario: Scenario) -> Iterable[str]:
    if exchange.outcome == "open":
        yield "never ended"
    whole = expected.get(exchange.prompt)
    if exchange.outcome == "completed":
        if exchange.endings != 1:
            yield f"had {exchange.endings} terminal events"
        if exchange.model in VECTORS and whole is not None:
            if not _are_close(json.loads(exchange.text), json.loads(whole)):
                yield "has other values than without faults"
        elif whole is not None and exchange.text != whole:
            yield f"text differs from {_first_difference(exchange.text, whole)}"
    elif whole is not None and not (whole.startswith(exchange.text) or exchange.text.startswith(whole)):
        yield f"the beginning of its text differs from {_first_difference(exchange.text, whole)}"
    if exchange.sampled:
        tokens = encode(exchange.text)
        if not is_one_sample(tokens):
            yield "the tokens of its text are from attempts that did not know each other's"
        if exchange.outcome == "completed" and len(tokens) != exchange.tokens:
            yield f"has {len(tokens)} tokens instead of {exchange.tokens}"
    if exchange.after_end:
        yield "text came after its terminal event"
    failed = exchange.outcome == "failed" or (exchange.outcome == "refused" and exchange.status not in (429, 503))
    if failed and not _is_excused(exchange, scenario):
        yield f"ended with status {exchange.status} and {exchange.error}"
    again = exchange.outcome == "refused" and exchange.status in (429, 503)
    if again and not exchange.retry_after and not _is_excused(exchange, scenario):
        yield f"was refused with {exchange.status} and no retry-after: {exchange.error}"
    if exchange.outcome == "cut" and exchange.status and not scenario.broken_connections:
        yield f"its connection ended early: {exchange.error}"


_DIFFERENCE = 1e-5
"""Most by which values differ that were computed beside other texts."""


def _are_close(rows: list[list[float]], others: list[list[float]]) -> bool:
    pairs = [*zip(chain.from_iterable(rows), chain.from_iterable(others), strict=False)]
    return [*map(len, rows)] == [*map(len, others)] and all(abs(one - other) <= _DIFFERENCE for one, other in pairs)


def _is_excused(exchange: Exchange, scenario: Scenario) -> bool:
    if exchange.outcome == "cut" and scenario.broken_connections:
        return True
    return bool(exchange.error) and any(word in exchange.error for word in scenario.visible)


def _first_difference(text: str, whole: str) -> str:
    at = next((index for index, (ours, theirs) in enumerate(zip(text, whole, strict=False)) if ours != theirs), None)
    if at is None:
        at = min(len(text), len(whole))
    return f"character {at} on: {text[at : at + 30]!r} instead of {whole[at : at + 30]!r}"


def check_keys(client: "redis.Redis") -> list[str]:
    """Return the keys that a service at rest must not hold."""
    wrong = []
    for name in client.scan_iter():
        key = name.decode()
        if key.startswith(LASTING_KEYS):
            continue
        ttl: int = at_once(client.pttl(name))
        if ttl == -1:
            wrong.append(f"key {key} has no TTL")
        elif ttl > 0 and key.startswith(("arq:job:", "vinoqueue:queue:", "vinoqueue:inflight:")):
            wrong.append(f"key {key} is left")
        elif ttl > _LATENESS * 1000 and key.startswith("vinoqueue:state:"):
            wrong.append(f"key {key} is left for {ttl / 1000:.0f} s")
    return wrong


_READERS = {b"string": ["GET"], b"list": ["LRANGE", "0", "-1"], b"hash": ["HVALS"], b"stream": ["XRANGE", "-", "+"]}


def check_vectors(client: "redis.Redis", expected: dict[str, str]) -> list[str]:
    """Return the keys that hold a vector or a score."""
    rows = chain.from_iterable(json.loads(text) for text in expected.values() if text.startswith("[["))
    raw = {struct.pack("<2f", *row[:2]) for row in rows if len(row) > 1}
    wrong = []
    for name in client.scan_iter():
        read, *rest = _READERS.get(at_once(client.type(name)), ["TYPE"])
        value = repr(command(client, read, name.decode(), *rest))
        wrong += [f"key {name.decode()} holds a vector"] if any(repr(one)[2:-1] in value for one in raw) else []
    return wrong


def check_stored(client: "redis.Redis", history: History, expected: dict[str, str]) -> list[str]:
    """Return which accepted answers that were to be stored are not, or not as they should be."""
    texts: dict[str, set[str]] = {}
    for name in client.scan_iter(keys.stored("", "chatcmpl-*")):
        metadata, document = at_once(client.hmget(name, ["metadata", "document"]))
        if document is None:
            continue
        found = texts.setdefault(json.loads(metadata).get("request", ""), set())
        found.add(json.loads(document)["choices"][0]["message"]["content"])
    wrong = []
    for exchange in history.exchanges:
        if exchange.stored_as and exchange.accepted and exchange.outcome in ("completed", "cut"):
            found = texts.get(exchange.stored_as, set())
            if not found:
                wrong.append(f"the answer to request {exchange.stored_as} is not stored")
            elif found != {expected.get(exchange.prompt)}:
                wrong.append(f"request {exchange.stored_as} is stored with another text")
    return wrong


_LONGEST_PROMPT = 1000
"""Tokens that no prompt exceeds."""


def counted_usage(client: "redis.Redis") -> dict[str, UsageCounts]:
    """Return the usage that the service has counted, of batch requests (``batch``) and of others (``other``)."""
    noted = [*client.scan_iter(keys.ended("*"))]
    wait_until(lambda: not any(map(client.xlen, noted)), "what requests have used to be counted")
    counted = {"other": UsageCounts(), "batch": UsageCounts()}
    for name in client.scan_iter(keys.usage("*")):
        for field, counts in at_once(client.hgetall(name)).items():
            counted[field.decode().split(" ")[1]] += UsageCounts.decode(counts)
    return counted


def check_usage(
    counted: dict[str, UsageCounts],
    before: dict[str, UsageCounts],
    history: History,
    batch: BatchUsage | None,
    scenario: Scenario,
) -> Iterable[str]:
    """Yield how ``counted`` differs from the usage ``before`` and the sums of what was reported to clients since.

    A request without a whole answer may have used up to what it asked for.
    """
    whole = [one for one in history.exchanges if one.outcome == "completed"]
    unknown = [one.tokens for one in history.exchanges if one.outcome != "completed"]
    unknown += [STUCK_TOKENS] * scenario.stuck
    reported = before["other"] + UsageCounts(
        requests=len(whole),
        prompt_tokens=sum(one.prompt_tokens for one in whole),
        completion_tokens=sum(one.completion_tokens for one in whole),
    )
    most = reported + UsageCounts(
        requests=len(unknown), prompt_tokens=_LONGEST_PROMPT * len(unknown), completion_tokens=sum(unknown)
    )
    yield from _differences("requests", counted["other"], reported, most)
    if batch is not None:
        lines = UsageCounts(
            requests=scenario.batch, prompt_tokens=batch.input_tokens, completion_tokens=batch.output_tokens
        )
        # A replica that dies before it has committed a result leaves the request to another, which serves it again.
        again = scenario.broken_connections
        yield from _differences("batch requests", counted["batch"], lines, None if again else lines)


def _differences(what: str, counted: UsageCounts, least: UsageCounts, most: UsageCounts | None) -> Iterable[str]:
    for name in ("requests", "prompt_tokens", "completion_tokens"):
        number, low = getattr(counted, name), getattr(least, name)
        high = getattr(most, name) if most is not None else math.inf
        if not low <= number <= high:
            yield f"usage of {what}: {name} are {number}; clients received {low}, and at most {high} were used"


def check_footprints(before: dict[int, Footprint], after: dict[int, Footprint]) -> list[str]:
    """Return which processes have grown while they lived."""
    wrong = []
    for pid, now in after.items():
        then = before.get(pid)
        if then is None:
            continue
        if now.files > then.files + _MORE_FILES:
            wrong.append(f"process {pid} had {then.files} open files and has {now.files}")
        if now.megabytes > then.megabytes + _MORE_MEGABYTES:
            wrong.append(f"process {pid} had {then.megabytes:.0f} MB and has {now.megabytes:.0f} MB")
    return wrong
