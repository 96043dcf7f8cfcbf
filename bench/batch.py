"""batch: a batch on an idle worker against the engine alone, and first tokens of other requests while a batch runs.

On the real default model. The rate of a batch is measured between its first and its last commit of results, without the
wait for a feeder and the assembly of the result files. First tokens are measured in turns, with a batch under way and
without one.
"""

import itertools
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.load import chats
from bench.prompts import distinct_prompts
from bench.reference_engine import ReferenceEngine, engine_options
from bench.report import median_and_spread, ratios, save, table, with_spread
from cli.base.api_client import ApiClient
from cli.batch.client import Client
from shared.runtime.event_loop import run as run_loop
from tests.support.eventually import wait_until
from tests.support.fleet import Fleet
from worker.model.local import resolve

SLOTS = 32
TOKENS = 64
WAVES = 10
"""How often each slot is used by a batch whose rate is measured."""
FEW = 4
"""Tokens of an answer of which the first one counts."""
WORDS = (0, 280, 970)
"""Words that make prompts of about 30, 300 and 1,000 tokens."""
GAPS = (0.5, 1.5)
"""Minimum and maximum seconds between other requests, beyond the time to the first token of the earlier one."""
ALONE = 10.0
"""Seconds in which a batch runs without other requests."""
_LOOK = 0.05


RESERVES = ("0", "auto")


def run(folder: Path, *, runs: int = 3, pairs: int = 20, waves: int = WAVES) -> dict[str, Any]:
    """Measure, print the tables, and return the result."""
    rates = []
    for reserve in RESERVES:
        with _fleet(folder / f"reserve-{reserve}") as running:
            running.worker("--max-batch", str(SLOTS), "--batch-reserve", reserve)
            running.api()
            rates.append({"--batch-reserve": reserve} | _rates(running, runs, waves * SLOTS))
    with _fleet(folder / "first") as running:
        running.worker("--max-batch", str(SLOTS))
        running.api()
        first = _first_tokens(running, runs, pairs)
    print(table(f"batch: {waves * SLOTS} lines of {TOKENS} tokens, {SLOTS} slots, {runs} alternating runs", rates))
    print(table(f"first token of other requests: {runs} turns of {pairs} requests with and without a batch", first))
    save("batch", {"rates": rates, "first": first})
    return {"rates": rates, "first": first}


@contextmanager
def _fleet(folder: Path) -> Iterator[Fleet]:
    running = Fleet(folder, local=True)
    try:
        yield running
    finally:
        running.stop()


def _rates(running: Fleet, runs: int, lines: int) -> dict[str, object]:
    model = resolve("default")
    options = engine_options(model, max_batch=SLOTS)
    engine = ReferenceEngine(options)
    alone, batches = [], []
    try:
        for turn in range(runs + 1):
            prompts = distinct_prompts(turn, lines)
            reference = engine.run(prompts, TOKENS, SLOTS)
            rate = _rate(running, prompts, model.name)
            if turn:
                alone.append(reference["tokens"] / reference["seconds"])
                batches.append(rate)
    finally:
        engine.stop()
    return {"tokens/s": median_and_spread(batches)[0], "ratio to the engine alone": ratios(batches, alone)}


def _rate(running: Fleet, prompts: list[str], model: str) -> float:
    """Return the tokens per second of one batch, between its first and its last commit."""
    client = _client(running)
    batch_id = _submit(running, prompts, model, TOKENS)
    seen: list[tuple[float, int]] = []

    def over() -> bool:
        batch = client.get(batch_id)
        tokens = batch["usage"]["output_tokens"] if batch.get("usage") else 0
        if tokens and (not seen or tokens > seen[-1][1]):
            seen.append((time.perf_counter(), tokens))
        time.sleep(_LOOK)
        return bool(batch["status"] == "completed")

    wait_until(over, "the batch to end")
    (began, before), (end, after) = seen[0], seen[-1]
    return (after - before) / (end - began)


def _first_tokens(running: Fleet, runs: int, pairs: int) -> list[dict[str, object]]:
    """Compare first tokens with and without a batch, and the batch's rates with and without other requests."""
    client, model = _client(running), resolve("default").name
    turns = itertools.count(1000)
    without: dict[int, list[float]] = {words: [] for words in WORDS}
    during: dict[int, list[float]] = {words: [] for words in WORDS}
    shares: dict[int, list[float]] = {words: [] for words in WORDS}
    for turn in range(runs):
        for words in WORDS:
            without[words].append(_median_first(running.port, model, next(turns), pairs, words))
        batch_id = _submit(running, distinct_prompts(5000 + 10 * turn, 2000), model, 4 * TOKENS)
        wait_until(lambda: _full(running), "the batch to fill the worker")
        for words in WORDS:
            before = _tokens(running)
            time.sleep(ALONE)
            between = _tokens(running)
            during[words].append(_median_first(running.port, model, next(turns), pairs, words))
            shares[words].append(_per_second(between, _tokens(running)) / _per_second(before, between))
        client.cancel(batch_id)
        wait_until(lambda batch_id=batch_id: client.get(batch_id)["status"] == "cancelled", "the batch to be cancelled")  # type: ignore[misc]
    return [
        {
            "words of a prompt": words,
            "without a batch, ms": with_spread(without[words]),
            "with a batch, ms": with_spread(during[words]),
            "ratio": ratios(during[words], without[words]),
            "tokens/s of the batch, to those without requests": with_spread(shares[words]),
        }
        for words in WORDS
    ]


def _tokens(running: Fleet) -> tuple[float, int]:
    """Return the time of the worker's next report, and the number of tokens that its engine has generated."""

    def count() -> int:
        tokens: int = sum(worker.get("tokens", 0) for worker in running.workers())
        return tokens

    before = count()
    wait_until(lambda: count() != before, "the worker's next report")
    return time.perf_counter(), count()


def _per_second(earlier: tuple[float, int], later: tuple[float, int]) -> float:
    return (later[1] - earlier[1]) / (later[0] - earlier[0])


def _client(running: Fleet) -> Client:
    return Client(ApiClient(f"http://127.0.0.1:{running.port}", ""))


def _submit(running: Fleet, prompts: list[str], model: str, tokens: int) -> str:
    """Create a batch with one line for each prompt; return its id."""
    file = running.folder / "batch"
    lines = (_line(str(at), model, prompt, tokens) for at, prompt in enumerate(prompts))
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    client = _client(running)
    made = client.create(client.upload(file, lambda _: None), "/v1/chat/completions", {})
    return str(made["id"])


def _full(running: Fleet) -> bool:
    used: int = sum(worker.get("used", 0) for worker in running.workers())
    return used >= SLOTS // 2


def _median_first(port: int, model: str, turn: int, pairs: int, words: int) -> float:
    """Return the median time to the first token in milliseconds, of requests at random times.

    They leave a batch the time to run as long as it was preempted, after which it can be preempted again.
    """
    times = [0.0]
    dice = random.Random(turn)  # noqa: S311 - times, no secrets
    for prompt in distinct_prompts(turn, pairs, words):
        time.sleep(times[-1] / 1e3 + dice.uniform(*GAPS))
        (stream,) = run_loop(chats(port, model, [prompt], FEW, 1))
        times.append((stream.first - stream.began) * 1e3)
    return median_and_spread(times[1:])[0]


def _line(custom_id: str, model: str, prompt: str, tokens: int) -> dict[str, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
