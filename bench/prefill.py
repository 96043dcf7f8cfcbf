"""prefill: how long running streams wait while a long prompt comes in, by the prompt tokens that a step may take.

Through the whole service, on the real default model. Each setting has a worker of its own, which serves the same model
under another name; they take turns.
"""

import asyncio
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.load import Stream, chat
from bench.prompts import VOCABULARY
from bench.report import save, table
from cli.bench.report import percentile
from shared.runtime.event_loop import run as run_loop
from tests.support.fleet import Fleet
from worker.model.local import resolve

STREAMS = 8
PROMPT_TOKENS = 4000
STEP_TOKENS = (128, 256, 512, 1024, 8192)
"""The last one takes every prompt of the default model in one step."""

_STREAM_TOKENS = 400
_BEFORE = 3.0
"""Seconds for which the streams run alone."""


def run(folder: Path, *, runs: int = 5, step_tokens: Sequence[int] = STEP_TOKENS) -> dict[str, Any]:
    """Measure, print the table, and return the result."""
    path = resolve("default").path
    fleet = Fleet(folder, local=True)
    try:
        for tokens in step_tokens:
            fleet.worker("--model", f"prefill-{tokens}={path}", "--prefill-tokens", str(tokens), "--cache-size", "1")
        fleet.api()
        turns: dict[int, list[dict[str, float]]] = {tokens: [] for tokens in step_tokens}
        for turn in range(runs):
            for tokens in step_tokens if turn % 2 else reversed(step_tokens):
                turns[tokens].append(run_loop(_turn(fleet.port, f"prefill-{tokens}", turn)))
    finally:
        fleet.stop()
    rows: list[dict[str, object]] = [
        {"prompt tokens a step": tokens} | {name: statistics.median(one[name] for one in taken) for name in taken[0]}
        for tokens, taken in turns.items()
    ]
    print(
        table(
            f"prefill: gaps between the tokens of {STREAMS} streams while a prompt of {PROMPT_TOKENS} tokens comes in, "
            f"ms, medians of {runs} turns",
            rows,
        )
    )
    save("prefill", {"rows": rows})
    return {"rows": rows}


async def _turn(port: int, model: str, turn: int) -> dict[str, float]:
    """One setting's gaps of the running streams before and while the newcomer waits for its first token, in ms."""
    running = [
        asyncio.create_task(chat(port, model, f"Tell a long story about number {turn * 100 + at}.", _STREAM_TOKENS))
        for at in range(STREAMS)
    ]
    await asyncio.sleep(_BEFORE)
    newcomer = await chat(port, model, _long_prompt(turn), 4)
    streams = await asyncio.gather(*running)
    assert all(stream.complete for stream in (newcomer, *streams))
    before = _gaps(streams, 0.0, newcomer.began)
    during = _gaps(streams, newcomer.began, newcomer.first)
    assert before, "the streams began too late"
    assert during, "the streams ended before the long prompt came in"
    return {
        "before: p50": percentile(before, 0.5),
        "before: max": max(before),
        "during: p50": percentile(during, 0.5),
        "during: p99": percentile(during, 0.99),
        "during: max": max(during),
        "newcomer's first token": (newcomer.first - newcomer.began) * 1000,
    }


def _gaps(streams: Sequence[Stream], begin: float, end: float) -> list[float]:
    """The gaps in ms that lie, at least in part, between two moments."""
    return [
        (later - earlier) * 1000
        for stream in streams
        for earlier, later in zip(stream.arrivals, stream.arrivals[1:], strict=False)
        if later > begin and earlier < end
    ]


def _long_prompt(turn: int) -> str:
    """A text of about :data:`PROMPT_TOKENS` tokens that begins like no other."""
    chance = random.Random(turn)  # noqa: S311 - prompts, not secrets
    return " ".join(chance.choice(VOCABULARY) for _ in range(PROMPT_TOKENS))
