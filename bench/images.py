"""images: requests with images against GenAI's own pipeline, their bytes in the store, and gaps of other streams.

By default on the tiny vision-language model of the tests, whose steps take milliseconds: overhead looks larger than on
larger models. ``tools/make_large_vlm.py`` makes one of realistic size. Both sides start with image files. The
store's bytes for an image are those of a request with it less those of the same request without.
"""

import asyncio
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from bench.alone import EngineAlone
from bench.load import Content, Stream, chat, chats
from bench.report import ratios, save, table, with_spread
from bench.usage import store_counts
from cli.bench.report import percentile
from shared.runtime.event_loop import run as run_loop
from shared.runtime.settings import EngineSettings
from tests.support.fleet import Fleet
from tests.support.pictures import SHAPES_MODEL, data_url, picture, png
from worker.engine.options import EngineOptions
from worker.model.local import resolve

TOKENS = 128
SIZES = (1, 8, 16)
"""Requests at a time."""

SIDE = 448
"""Pixels of a side of each image."""

STREAMS = 4
"""Running streams of text while images arrive."""

LONG = 1000
"""Tokens of each of them."""

ARRIVAL = 0.2
"""Seconds between the end of one request with an image and the next, while streams run."""

STORED = 20
"""Requests with images whose bytes in the store are counted."""

_QUESTION = "Count to 20."
_TINY = f"shapes={SHAPES_MODEL}"
_WHOLE = {"ignore_eos": True, "skip_special_tokens": False}
"""Fields of a request for an answer of exactly as many tokens as it may have, each with a text."""


def run(folder: Path, *, runs: int = 7, sizes: Sequence[int] = SIZES, model: str = _TINY) -> dict[str, Any]:
    """Measure, print the tables, and return the result. ``model`` is a vision-language model, as for a worker."""
    images = _Images(folder)
    slots = max(*sizes, STREAMS + 1)
    settings = EngineSettings(max_batch=slots)
    found = resolve(model)
    options = EngineOptions.from_settings(settings, path=str(found.path), context_length=found.context_length)
    fleet = Fleet(folder, local=True)
    engine = EngineAlone(options)
    try:
        fleet.worker("--model", model, "--max-batch", str(slots))
        fleet.api()
        service = _Service(fleet, found.name)
        rows = [_compare(service, engine, images, size, runs) for size in sizes]
        stored = _stored(service, images)
        gaps = _gaps(service, images, runs)
    finally:
        engine.stop()
        fleet.stop()
    print(table(f"images: {SIDE} x {SIDE} pixels, {TOKENS} tokens a request, {runs} alternating runs", rows))
    print(table(f"bytes through the store, {STORED} images", [stored]))
    print(table(f"p99 gap of {STREAMS} streams of text, {runs} alternating runs", [gaps]))
    save("images", {"rows": rows, "store": stored, "gaps": gaps})
    return {"rows": rows, "store": stored, "gaps": gaps}


class _Images:
    """Makes images, none of them twice. Noise makes their files as large as those of photographs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def make(self, count: int) -> list[Path]:
        """Return the files of ``count`` new images."""
        files = []
        for _ in range(count):
            self._count += 1
            noise = numpy.random.default_rng(self._count).integers(0, 16, (SIDE, SIDE, 3), numpy.uint8)
            files.append(self._folder / f"{self._count}.png")
            files[-1].write_bytes(png(picture(self._count).pixels(SIDE, SIDE) ^ noise))
        return files


def _asking(file: Path) -> Content:
    return [
        {"type": "image_url", "image_url": {"url": data_url(file.read_bytes())}},
        {"type": "text", "text": _QUESTION},
    ]


class _Service:
    """The service, as its clients see it."""

    def __init__(self, fleet: Fleet, model: str) -> None:
        self._fleet = fleet
        self._model = model

    async def ask(self, content: Content, tokens: int) -> Stream:
        """Stream one answer."""
        return await chat(self._fleet.port, self._model, content, tokens, **_WHOLE)

    async def ask_all(self, contents: Sequence[Content], tokens: int, concurrency: int) -> list[Stream]:
        """Stream an answer to each of ``contents``, at most ``concurrency`` at a time."""
        return await chats(self._fleet.port, self._model, contents, tokens, concurrency, **_WHOLE)

    def stored_bytes(self) -> int:
        """Return how many bytes the store has received and sent."""
        with self._fleet.redis() as store:
            return int(store_counts(store)["bytes"])


def _compare(service: _Service, engine: EngineAlone, images: _Images, size: int, runs: int) -> dict[str, object]:
    rates, own_rates, firsts, own_firsts = [], [], [], []
    for turn in range(runs + 1):
        files = images.make(size)
        if turn % 2:
            served, own = _served(service, files), _alone(engine, files)
        else:
            own, served = _alone(engine, files), _served(service, files)
        if turn:
            rates.append(served.rate)
            own_rates.append(own.rate)
            firsts.append(served.first)
            own_firsts.append(own.first)
    return {
        "requests": size,
        "tokens/s": statistics.median(rates),
        "ratio to the pipeline": ratios(rates, own_rates),
        "first token, ms": with_spread(firsts),
        "pipeline's, ms": with_spread(own_firsts),
        "ratio": ratios(firsts, own_firsts),
    }


class _Measured(NamedTuple):
    """Tokens/s of requests that are sent together, and the median of their first tokens in ms."""

    rate: float
    first: float


def _served(service: _Service, files: Sequence[Path]) -> _Measured:
    streams = run_loop(service.ask_all(list(map(_asking, files)), TOKENS, len(files)))
    assert all(stream.tokens == TOKENS for stream in streams)
    seconds = max(stream.ended for stream in streams) - min(stream.began for stream in streams)
    return _Measured(len(files) * TOKENS / seconds, statistics.median(one.first - one.began for one in streams) * 1e3)


def _alone(engine: EngineAlone, files: Sequence[Path]) -> _Measured:
    done = engine.run([_QUESTION] * len(files), TOKENS, len(files), files)
    assert done["tokens"] == len(files) * TOKENS
    return _Measured(done["tokens"] / done["seconds"], statistics.median(done["firsts"]) * 1e3)


def _stored(service: _Service, images: _Images) -> dict[str, object]:
    files = images.make(STORED)
    size = sum(file.stat().st_size for file in files) / STORED
    counted = []
    for contents in ([_QUESTION] * STORED, list(map(_asking, files))):
        before = service.stored_bytes()
        run_loop(service.ask_all(contents, TOKENS, 1))
        counted.append(service.stored_bytes() - before)
    through = (counted[1] - counted[0]) / STORED
    return {"bytes of a file": size, "bytes through the store": through, "ratio": through / size}


def _gaps(service: _Service, images: _Images, runs: int) -> dict[str, object]:
    without, during = [], []
    answered = 0
    for turn in range(runs + 1):
        idle = run_loop(_texts(service, turn))
        texts, count = run_loop(_texts_during_images(service, turn, images))
        if turn:
            without.append(_p99(idle))
            during.append(_p99(texts))
            answered += count
    return {
        "without images, ms": with_spread(without),
        "with images, ms": with_spread(during),
        "ratio": ratios(during, without),
        "images in each run": answered / runs,
    }


async def _texts(service: _Service, turn: int) -> list[Stream]:
    contents = [f"Count to {turn * STREAMS + at}." for at in range(STREAMS)]
    return await service.ask_all(contents, LONG, STREAMS)


async def _texts_during_images(service: _Service, turn: int, images: _Images) -> tuple[list[Stream], int]:
    """Return the streams of text, and the number of images that were answered meanwhile."""
    texts = asyncio.create_task(_texts(service, turn))
    answered = 0
    while not texts.done():
        (file,) = images.make(1)
        await service.ask(_asking(file), 1)
        answered += not texts.done()
        await asyncio.sleep(ARRIVAL)
    return await texts, answered


def _p99(streams: Sequence[Stream]) -> float:
    assert all(stream.tokens == LONG for stream in streams)
    return percentile([gap for stream in streams for gap in stream.gaps], 0.99) * 1e3
