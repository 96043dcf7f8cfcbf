"""embed: vectors over HTTP against the engine alone and other embedders; beside chats, and behind texts that wait.

The model is all-MiniLM-L6-v2. With ``env``, an environment as :mod:`bench.peers.embedders` describes, OpenVINO GenAI
and sentence-transformers take turns, behind a server that does nothing else, and llama.cpp's server, with as many
threads. Rates are of whole requests, from texts to vectors in base64. ``quick`` shows that all parts run: its model is
tiny, its figures are none.
"""

import asyncio
import json
import random
import re
import sys
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import numpy

from bench.load import chats
from bench.peers import embedders
from bench.peers.llama_cpp import ENVIRONMENT, LlamaCpp, bert_file
from bench.peers.server import start
from bench.prompts import VOCABULARY, distinct_prompts
from bench.report import ratios, save, table, with_spread
from bench.start import processes_of
from cli.bench.report import percentile
from shared.runtime.event_loop import run as run_loop
from tests.support.embedding_texts import model_folder
from tests.support.fleet import PATIENT, SIMULATED, Fleet
from tests.support.paths import MODELS
from worker.model.request_defaults import VARIABLE
from worker.model.source import DEFAULT_NAME

BULK, TEXTS = 8, 32
"""Connections that index, and texts of each of their requests."""
CLIENTS = 64
"""Connections that ask, one short text at a time."""
STREAMS, TOKENS = 4, 128
QUEUED = (("nothing", 0, 0), ("10,000 texts of its key", 10_000, 0), ("10,000 of another key", 10_000, 1),
          ("2,048 of another key", 2048, 1))  # fmt: skip
_ASKED = 10
"""Queries while others wait, one after the other."""
_HEAD_START = 1.0
"""Seconds from the texts to the queries behind them."""
_LONGEST = 5.0
"""Seconds for these."""
_SAME = 0.9999
"""Least cosine of two vectors of a text."""
_MODEL, _IDLE = "embedder", "idle-embedder"
_ALONE, _CALLS = "engine alone (ms: of a step)", "one call a request"
_PEERS = {"engine": _CALLS, "genai": "GenAI, same HTTP", "reference": "sentence-transformers, same HTTP"}


def run(folder: Path, *, runs: int = 5, env: str | None = None, quick: bool = False) -> dict[str, Any]:
    """Measure, print the tables, and return the result."""
    model, chat = (str(MODELS / "embed-bert"), "sim") if quick else (str(model_folder()), DEFAULT_NAME)
    runs, rounds = (1, 1) if quick else (runs, 2)
    found: dict[str, list[dict[str, Any]]] = {}
    fleet = Fleet(folder, local=True, lease=PATIENT if quick else None)
    with ExitStack() as ends:
        ends.callback(fleet.stop)
        fleet.worker("--model", f"{_MODEL}={model}")
        fleet.api()
        ports = {"vinoqueue": fleet.port}
        with ExitStack() as peers:
            for kind, name in _PEERS.items() if env else [*_PEERS.items()][:1]:
                python = sys.executable if kind == "engine" else f"{env}/bin/python"
                server = start([python, "-P", str(Path(embedders.__file__)), kind, model], folder / f"{kind}.log")
                peers.callback(server.stop)
                ports[name] = server.port
            if env:
                ENVIRONMENT.prepare()
                file = bert_file(Path(model), folder / "bert.gguf")
                server = LlamaCpp().start(file, TEXTS, folder, "--embedding", "--ubatch-size", "2048")
                peers.callback(server.stop)
                ports["llama.cpp's server"] = server.port
            calls = ports.pop(_CALLS)
            found["indexing"] = _compared({**ports, _ALONE: calls}, rounds, runs)
            own = {"vinoqueue": fleet.port, _ALONE: calls, _CALLS: calls}
            found["queries"] = _compared(own, 3 * rounds, runs, texts=1)
        found["CPU"] = [_overhead(fleet, *size, runs) for size in ((1, 50 * rounds), (TEXTS, 8 * rounds))]
        fleet.start("worker", "--model", f"{_IDLE}={model}", **{VARIABLE: json.dumps({"idle": True})})
        fleet.worker(*SIMULATED if quick else ("--model", "default"))
        fleet.until(lambda: len(fleet.workers("serving")) == 3, "the idle embedder to serve")
        found["chats"] = _beside_chats(fleet.port, chat, runs)
        found["queue"] = _queued(fleet, min(runs, 3))
    for part, title in (
        ("indexing", f"{BULK} connections of {TEXTS} texts, medians of {runs} alternating runs, as below"),
        ("queries", f"{CLIENTS} connections of one short text"),
        ("CPU", "CPU time of the processes but the engine, in ms a text"),
        ("chats", f"{STREAMS} streams of a chat; {BULK} connections of {TEXTS} texts to an 'idle' embedder"),
        ("queue", f"a query behind texts that wait: the median and the most of {_ASKED}"),
    ):
        print(table(f"embed, {part}: {title}", found[part]))
    save("embed", found)
    return found


def _requests(seed: int, number: int, texts: int = TEXTS) -> list[list[str]]:
    """Return requests with chunks of documents, or with one query each."""
    dice = random.Random(seed)  # noqa: S311 - texts, no secrets
    words = range(4, 13) if texts == 1 else range(5, 41)
    return [[" ".join(dice.choices(VOCABULARY, k=dice.choice(words))) for _ in range(texts)] for _ in range(number)]


def _body(texts: Sequence[str], model: str = _MODEL) -> bytes:
    asked = {"model": model, "input": texts, "encoding_format": "base64", "truncate_prompt_tokens": -1}
    return json.dumps(asked).encode()


Answers = list[tuple[float, bytes]]
"""Of each request, the seconds and the body of the response."""


async def _send(port: int, bodies: Iterator[bytes], answers: Answers, connections: int = 1, key: str = "") -> Answers:
    """Send each body over one of the connections."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
        head = f"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n"
        try:
            for body in bodies:
                began = time.perf_counter()
                writer.write(b"%bcontent-type: application/json\r\n" % head.encode())
                writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
                answer = (await reader.readuntil(b"\r\n\r\n")).lower()
                assert answer.startswith(b"http/1.1 200"), answer
                content = await reader.readexactly(int(re.findall(rb"content-length: *(\d+)", answer)[0]))
                answers.append((time.perf_counter() - began, content))
        finally:
            writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))
    return answers


def _sent(port: int, bodies: Sequence[bytes], connections: int = 1) -> Answers:
    return run_loop(_send(port, iter(bodies), [], connections))


def _vectors(port: int) -> Any:
    ((_, answer),) = _sent(port, [_body(_requests(0, 1)[0])])
    found = [numpy.frombuffer(b64decode(item["embedding"]), "<f4") for item in json.loads(answer)["data"]]
    return numpy.array(found) / numpy.linalg.norm(found, axis=1, keepdims=True)


def _compared(ports: dict[str, int], rounds: int, runs: int, texts: int = TEXTS) -> list[dict[str, Any]]:
    """Compare the servers at these ports, which must compute the same. The engine alone has no HTTP."""
    own = _vectors(ports["vinoqueue"])
    for name, port in ports.items():
        assert (own * _vectors(port)).sum(axis=1).min() > _SAME, f"{name} computes other vectors"
    connections = CLIENTS if texts == 1 else BULK
    rates: dict[str, list[float]] = {name: [] for name in ports}
    times: dict[str, list[float]] = {name: [] for name in ports}
    for turn in range(runs + 1):
        requests = _requests(1000 * texts + turn, connections * rounds, texts)
        for name, port in ports.items():
            alone = json.dumps({"requests": requests, "concurrency": connections}).encode()
            began = time.perf_counter()
            answers = _sent(port, [alone] if name == _ALONE else [*map(_body, requests)], connections)
            seconds = time.perf_counter() - began
            if turn:
                rates[name].append(len(requests) * texts / seconds)
                times[name] += [json.loads(answers[0][1])["step"]] if name == _ALONE else [one for one, _ in answers]
    return [
        {"embedder": name, "texts/s": with_spread(of), "vinoqueue to it": ratios(rates["vinoqueue"], of)}
        | {f"p{share * 100:.0f} ms": percentile(times[name], share) * 1e3 for share in (0.5, 0.99)}
        | {"p99 to p50": percentile(times[name], 0.99) / percentile(times[name], 0.5)}
        for name, of in rates.items()
    ]


def _overhead(fleet: Fleet, texts: int, number: int, runs: int) -> dict[str, Any]:
    """Return the CPU time of each process but the engine, for single texts over one connection."""
    turns: list[Counter[str]] = []
    for turn in range(runs + 1):
        before = _cpu(fleet)
        _sent(fleet.port, [*map(_body, _requests(turn, number, texts))], 1 if texts == 1 else BULK)
        turns.append(_cpu(fleet))
        turns[-1].subtract(before)
    del turns[0]["engine"]
    each = {"all": [*turns[0]], **{name: [name] for name in turns[0]}}
    return {"texts a request": texts} | {
        title: with_spread([sum(used[name] for name in names) / number / texts for used in turns[1:]])
        for title, names in each.items()
    }


def _cpu(fleet: Fleet) -> Counter[str]:
    """Return the milliseconds of CPU time that each of the service's processes has used."""
    used = Counter[str]()
    for root in (fleet.store.pid, *(process.popen.pid for process in fleet.processes)):
        for one in processes_of(root) if root is not None else ():
            used[one.name] += round(1e3 * one.cpu)
    return used


def _beside_chats(port: int, chat: str, runs: int) -> list[dict[str, Any]]:
    bodies = [_body(texts, _IDLE) for texts in _requests(0, BULK)]
    turns = [
        [run_loop(_chats(port, chat, 2 * turn + bulk, bodies * bulk)) for bulk in (0, 1)] for turn in range(runs + 1)
    ]
    rows: list[dict[str, Any]] = []
    for bulk, name in enumerate(("without", "with")):
        row: dict[str, Any] = {"indexing": name}
        for share in (0.5, 0.99):
            own, base = ([1e3 * percentile(turn[of][0], share) for turn in turns[1:]] for of in (bulk, 0))
            row |= {
                f"p{share * 100:.0f} between tokens, ms": with_spread(own),
                f"p{share * 100:.0f}, ratio": ratios(own, base),
            }
        rows.append(row | {"texts/s": with_spread([turn[bulk][1] for turn in turns[1:]])})
    return rows


async def _chats(port: int, model: str, turn: int, bulk: Sequence[bytes]) -> tuple[list[float], float]:
    """Return the seconds between tokens, and the texts a second that were indexed meanwhile."""
    answers: Answers = []
    sending, began = asyncio.create_task(_send(port, cycle(bulk), answers, BULK)), time.perf_counter()
    streams = await chats(port, model, distinct_prompts(turn, STREAMS), TOKENS, STREAMS)
    rate = len(answers) * TEXTS / (time.perf_counter() - began)
    await _end(sending)
    assert all(stream.complete for stream in streams)
    return [*chain.from_iterable(stream.gaps for stream in streams)], rate


async def _end(sending: "asyncio.Task[Any]") -> None:
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending


def _queued(fleet: Fleet, runs: int) -> list[dict[str, Any]]:
    keys = [fleet.key("create", "--name", name) for name in ("one", "other")]
    fleet.until(lambda: fleet.status("/v1/models") == 401, "the keys to be read")
    rows: list[dict[str, Any]] = []
    for name, texts, own in QUEUED:
        turns = [run_loop(_behind(fleet.port, texts, keys[0], keys[own])) for _ in range(runs)]
        rows.append({"behind": name, "query ms": with_spread([percentile(times, 0.5) for times, _ in turns]),
                     "most ms": with_spread([max(times) for times, _ in turns]),
                     "requests left": with_spread([left for _, left in turns])})  # fmt: skip
    return rows


async def _behind(port: int, texts: int, bulk: str, own: str) -> tuple[list[float], float]:
    """Return the milliseconds of queries of the key ``own`` behind ``texts`` of the key ``bulk``, and how many requests
    of these are left then."""
    answers: Answers = []
    bodies = [_body(_requests(begin, 1, min(2000, texts - begin))[0]) for begin in range(0, texts, 2000)]
    sending = asyncio.create_task(_send(port, iter(bodies), answers, len(bodies), bulk))
    await asyncio.sleep(_HEAD_START if texts else 0)
    queries: Answers = []
    with suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST):
            await _send(port, map(_body, _requests(9, _ASKED, 1)), queries, 1, own)
    left = len(bodies) - len(answers)
    await _end(sending)
    return [1e3 * seconds for seconds, _ in queries] or [1e3 * _LONGEST], left
