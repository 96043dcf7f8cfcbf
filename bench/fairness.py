"""fairness: a small schema and a small image of one key while another key floods the service, in a worker's processes.

The reference is the same flood in the same key, which waits in order of arrival.
"""

import asyncio
import io
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from PIL import Image as Picture

from bench.report import save, table, with_spread
from shared.parsers.formats import OutputFormat
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Image, Job, Message
from shared.runtime.event_loop import run as run_loop
from worker.grammar.messages import GrammarOptions
from worker.grammar.planner import make_plan
from worker.grammar.service import GrammarProcess
from worker.images.messages import ImageOptions
from worker.images.service import ImageProcess
from worker.model.local import default_model

FLOOD = 6
"""Calls of the flood."""

HEAD_START = 0.1
"""Seconds from the flood to the call that is measured."""

_REPETITIONS = "|".join(f"[a-z]{{1,100}}{number}[b-z]{{1,100}}" for number in range(60))

Send = Callable[[str, str], Awaitable[object]]
"""Makes a call, expensive or ``"small"``, for a tenant."""


def run(folder: Path, *, runs: int = 3) -> dict[str, Any]:
    """Measure, print the table, and return the result."""
    rows = run_loop(_measure(runs))
    print(table(f"seconds of a small call during {FLOOD} expensive ones, {runs} alternating runs", rows))
    save("fairness", {"rows": rows})
    return {"rows": rows}


async def _measure(runs: int) -> list[dict[str, object]]:
    grammars = GrammarProcess(GrammarOptions(engine="openvino", path=str(default_model())), max_seconds=0.25)
    images = ImageProcess(ImageOptions(), image_pixels=2**20)
    try:
        return [
            await _row("schemas that are refused", _schemas(grammars), runs),
            await _row("images of 24 megapixels", _images(images), runs),
        ]
    finally:
        await grammars.stop()
        await images.stop()


async def _row(what: str, send: Send, runs: int) -> dict[str, object]:
    """Compare a small call alone, during a flood of the same key, and during one of another key."""
    await send("small", "warm-up")
    alone, same, other = [], [], []
    for number in range(runs):
        # New keys: those of earlier runs have used their budgets, and may be isolated.
        alone.append(await _timed(send("small", f"b{number}")))
        same.append(await _during(send, f"b{number}", f"b{number}"))
        other.append(await _during(send, f"a{number}", f"c{number}"))
    return {
        "flood": what,
        "alone": with_spread(alone),
        "same key": with_spread(same),
        "another key": with_spread(other),
        "another key / same key": with_spread([mine / theirs for mine, theirs in zip(other, same, strict=True)]),
    }


async def _during(send: Send, greedy: str, tenant: str) -> float:
    flood = [asyncio.ensure_future(_timed(send("expensive", greedy))) for _ in range(FLOOD)]
    await asyncio.sleep(HEAD_START)
    seconds = await _timed(send("small", tenant))
    await asyncio.gather(*flood)
    return seconds


async def _timed(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    with suppress(RequestRefused):
        await call
    return time.perf_counter() - began


def _schemas(process: GrammarProcess) -> Send:
    async def send(kind: str, tenant: str) -> None:
        salt = f"x{time.monotonic_ns()}"
        if kind == "small":
            schema = {"type": "object", "properties": {salt: {"type": "string"}}, "additionalProperties": False}
            constraint = Constraint(kind="json_schema", value=json.dumps(schema))
        else:
            constraint = Constraint(kind="regex", value=f"{salt}({_REPETITIONS})")
        request = ChatRequest(model="m", messages=(Message(role="user", content="Hi"),), constraint=constraint)
        plan = make_plan(request, OutputFormat(), "")
        assert plan.grammar is not None
        await process.check(plan.grammar, plan.param, tenant)

    return send


def _images(process: ImageProcess) -> Send:
    files = {"small": _png(64, 64), "expensive": _png(6000, 4000)}

    async def send(kind: str, tenant: str) -> None:
        digest = str(time.monotonic_ns())
        images = (Image(param="messages[0].content[0]", digest=digest),)
        request = ChatRequest(model="m", messages=(Message(role="user", content="Hi", images=images),))
        job = Job(id="r:0", reply_to="", request=request, tenant=tenant)
        await process.decode(job, {digest: files[kind]})

    return send


def _png(width: int, height: int) -> bytes:
    file = io.BytesIO()
    Picture.linear_gradient("L").resize((width, height)).convert("RGB").save(file, "PNG")
    return file.getvalue()
