"""grammars: what structured output costs the streams of others.

Through the whole service, on the default model. While streams of plain text run, other clients send requests with a
JSON schema, one after the other. The reference is the same load without schemas.
"""

import asyncio
import statistics
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from bench.load import Stream, chat, chats
from bench.report import ratios, save, table, turns, with_spread
from cli.bench.report import percentile
from shared.runtime.event_loop import run as run_loop
from tests.support.fleet import Fleet

STREAMS = 4
"""Streams of plain text."""

TOKENS = 200
"""Tokens of each of them."""

CLIENTS = 4
"""Clients with schemas."""

PAUSE = 0.5
"""Seconds between an answer to one of them and its next request."""

MAX_SECONDS = 150.0
"""Seconds after which no further turn begins."""

Schema = dict[str, Any]


class Load(NamedTuple):
    """What the clients with schemas send. ``schema`` makes that of a request from a number that is never used twice."""

    title: str
    schema: Callable[[int], Schema] | None
    tokens: int = 4


def _object(number: int, size: int) -> Schema:
    names = [f"p{number}_{index}" for index in range(size)]
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": names,
        "additionalProperties": False,
    }


LOADS = (
    Load("none", None),
    Load("one schema, 10 properties", lambda _: _object(0, 10)),
    Load("new schemas, 10 properties", lambda number: _object(number, 10)),
    Load("new schemas, 100 properties", lambda number: _object(number, 100)),
    Load("new enums of 1,000 values", lambda number: {"enum": [f"value {number} {index}" for index in range(1000)]}),
    Load("none, long answers", None, 100),
    Load("strings of 40 characters and more", lambda _: {"type": "string", "minLength": 40, "maxLength": 2000}, 100),
)
"""Each is compared with the last one before it that has no schema."""


def run(folder: Path, *, runs: int = 5) -> dict[str, Any]:
    """Measure, print the table, and return the result."""
    fleet = Fleet(folder, local=True)
    numbers = count()
    results: list[list[_Measured]] = [[] for _ in LOADS]
    try:
        fleet.worker("--max-batch", str(STREAMS + CLIENTS))
        fleet.api()
        model = fleet.workers()[0]["model"]
        for turn in turns(runs, MAX_SECONDS):
            for index in range(len(LOADS)) if turn % 2 else reversed(range(len(LOADS))):
                measured = run_loop(_turn(fleet.port, model, LOADS[index], turn, numbers))
                if turn:
                    results[index].append(measured)
    finally:
        fleet.stop()
    rows = []
    for load, taken in zip(LOADS, results, strict=True):
        rates = [one.rate for one in taken]
        if load.schema is None:
            reference = rates
        rows.append(
            {
                "schemas": load.title,
                "tokens/s of the streams": statistics.median(rates),
                "ratio": ratios(rates, reference),
                "p99 gap, ms": with_spread([one.gap for one in taken]),
                "answers/s": statistics.median(one.answers for one in taken),
                "refused": sum(one.refused for one in taken),
            }
        )
    print(
        table(f"grammars: {STREAMS} streams beside {CLIENTS} clients with schemas, {len(taken)} alternating runs", rows)
    )
    save("grammars", {"rows": rows})
    return {"rows": rows}


class _Measured(NamedTuple):
    """Tokens/s of the streams and the p99 of their gaps in ms; answers per second to the clients with schemas, and the
    number of refusals."""

    rate: float
    gap: float
    answers: float
    refused: int


async def _turn(port: int, model: str, load: Load, turn: int, numbers: "count[int]") -> _Measured:
    contents = [f"Tell a long story about number {turn * STREAMS + at}." for at in range(STREAMS)]
    streams = asyncio.create_task(chats(port, model, contents, TOKENS, STREAMS, ignore_eos=True))
    answered: list[Stream] = []

    async def client() -> None:
        while not streams.done():
            number = next(numbers)
            fields: dict[str, Any] = {}
            if load.schema is not None:
                schema = {"name": "s", "schema": load.schema(number)}
                fields = {"response_format": {"type": "json_schema", "json_schema": schema}}
            answered.append(await chat(port, model, f"Write about number {number}.", load.tokens, **fields))
            await asyncio.sleep(PAUSE)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return _measured(await streams, answered)


def _measured(streams: Sequence[Stream], answered: Sequence[Stream]) -> _Measured:
    assert all(stream.tokens == TOKENS for stream in streams)
    ended = max(stream.ended for stream in streams)
    seconds = ended - min(stream.began for stream in streams)
    return _Measured(
        rate=STREAMS * TOKENS / seconds,
        gap=percentile([gap for stream in streams for gap in stream.gaps], 0.99) * 1e3,
        answers=sum(one.complete and one.ended <= ended for one in answered) / seconds,
        refused=sum(one.status != 200 for one in answered),
    )
