"""The way of a token from the engine to the client's bytes, walked in one process, a step at a time.

Everything is the real thing but the processes' borders: the simulated engine, the supervisor's job runner and
publisher, a real Valkey, the relay, and the writing of the stream. Nothing depends on the clock or on chance, so what
is counted here is the same on a fast and on a slow machine.
"""

import asyncio
import select
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, cast

import msgspec

from api.chat.relay import Relay
from api.chat.stream import ResponseStream
from api.chat.usage import UsageRecorder
from api.chat.writer import stream
from api.dialects.openai.render import ChatResponseEncoder
from shared.protocol.queue import Emitter, JobQueue
from shared.protocol.request import ChatRequest, Job, Message, Sampling
from shared.redis import keys
from shared.redis.client import connect, raw_connection
from shared.redis.reconnections import Reconnections
from shared.runtime.settings import EngineSettings
from shared.runtime.tasks import cancel_all
from tests.support.fleet import free_port
from tests.support.job_rig import JobRig
from tests.support.store import Store
from worker.engine.protocol import EngineSequence, RawEngineReport, RawStep, Stepped
from worker.jobs.publisher import Publisher
from worker.prompt.messages import Prepared
from worker.simulated.engine import SimulatedEngine, SimulatedOptions
from worker.simulated.prompt_maker import SimulatedPromptMaker

STREAMS = 64
TOKENS = 200
_CONTEXT = 8192
_REPLICA = "f" * 32
_PATIENCE = 10.0
"""Seconds that the store may take to answer."""

_TURNS = 3
"""Rounds of the event loop in which the streams take what a frame has brought."""


@dataclass
class Walk:
    """What a walk counted."""

    tokens: int = 0
    steps: int = 0
    engine_bytes: int = 0
    """From the engine's process to the supervisor."""
    supervisor_calls: int = 0
    """Functions called by the supervisor for a step's report and its publication, and to take the answer to the last
    one, in Python or built in."""
    api_calls: int = 0
    """The same from a frame to the bytes of the streams."""
    client_bytes: int = 0
    """Of the streams' bodies."""
    queue_commands: int = 0
    """The store's commands for queueing and claiming, those inside scripts too."""
    emit: Counter[str] = field(default_factory=Counter)
    """What the store did for publishing: ``commands``, ``scripts``, ``publishes``, ``bytes_in`` and ``bytes_out``."""


def walk(folder: Path, streams: int = STREAMS) -> Walk:
    """Serve ``streams`` chats of ``TOKENS`` tokens at once with a store in ``folder``, and count."""
    store = Store(folder / "store", free_port())
    store.start()
    try:
        return asyncio.run(_walk(store, streams))
    finally:
        store.kill()


async def _walk(store: Store, streams: int) -> Walk:
    redis, observer = connect(store.url), store.client()
    counted = Walk()
    with observer.pubsub(ignore_subscribe_messages=True) as subscription:  # type: ignore[no-untyped-call]
        subscription.subscribe(keys.replica_channel(_REPLICA))
        subscription.get_message(timeout=5)
        queue = JobQueue(redis, "sim")
        before = _store_counts(observer)
        jobs = _jobs(streams)
        for job in jobs:
            await queue.enqueue([job], limit=streams)
        claims, _ = await queue.claim("w1", used=0, slots=streams)
        counted.queue_commands = (_store_counts(observer) - before)["commands"]

        settings = EngineSettings(engine="simulated", max_batch=streams, sim_step=0)
        engine = _Engine(SimulatedOptions.from_settings(settings, path=f"[[tokens {TOKENS}]]", context_length=_CONTEXT))
        wire = raw_connection(store.url)
        rig = JobRig(
            lambda table, current: Publisher(Emitter("sim", "w1"), wire, table, current, Reconnections()),
            prompts=_Prompts(),
            caching=False,
            slots=streams,
        )
        rig.load(engine, engine.engine_info)
        tasks = {asyncio.create_task(rig.runner.run(claim)) for claim in claims}
        tasks.add(asyncio.create_task(rig.publisher.run()))
        async with asyncio.timeout(_PATIENCE):
            await engine.full.wait()
            while not wire.is_open:  # noqa: ASYNC110 - a line has no event for it
                await asyncio.sleep(0.001)

        before = _store_counts(observer)
        while len(engine):
            report = engine.step(counted)
            with _calls_counted() as calls:
                rig.outputs.on_stepped(engine.received(report))
            counted.supervisor_calls += calls()
            # The next step finds the answer, as it does in use. The event loop does not wait for it, or its own timers
            # would take it first on a slow machine.
            select.select([wire], [], [], _PATIENCE)
            await asyncio.sleep(0)
        await rig.publisher.flushed()
        counted.emit = _store_counts(observer) - before
        await cancel_all(tasks)
        frames = _frames(subscription, counted.emit["publishes"])
    await _relay(Relay(redis, _REPLICA), jobs, frames, counted)
    observer.close()
    await redis.aclose(close_connection_pool=True)
    return counted


async def _relay(relay: Relay, jobs: list[Job], frames: list[bytes], counted: Walk) -> None:
    async def consume(job: Job) -> None:
        answer = ResponseStream([job.id], "sim")
        relay.open(answer)
        rendering = ChatResponseEncoder(
            job.request, response_id=job.id, created=1_700_000_000, fingerprint="fp_simulated"
        )
        async for piece in stream(answer, job.request, rendering, UsageRecorder()):
            counted.client_bytes += len(piece)

    consumers = [asyncio.create_task(consume(job)) for job in jobs]
    await asyncio.sleep(0)
    for frame in frames:
        with _calls_counted() as calls:
            relay.route(frame)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        counted.api_calls += calls()
    async with asyncio.timeout(10):
        await asyncio.gather(*consumers)


def _jobs(streams: int) -> list[Job]:
    return [
        Job(
            id=f"{number:032x}",
            reply_to=_REPLICA,
            request=ChatRequest(
                model="sim",
                messages=(Message(role="user", content=f"question {number}"),),
                sampling=Sampling(max_tokens=TOKENS, seed=number),
            ),
        )
        for number in range(streams)
    ]


def _frames(subscription: Any, count: int) -> list[bytes]:
    """The frames that were published; they have waited in the connection."""
    messages = [subscription.get_message(timeout=10) for _ in range(count)]
    return [message["data"] for message in messages]


def _store_counts(client: Any) -> Counter[str]:
    """What the store has done since its start, as in :attr:`Walk.emit`."""
    stats, commands = client.info("stats"), client.info("commandstats")

    def calls(*names: str) -> int:
        return sum(commands.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names)

    return Counter(
        commands=stats["total_commands_processed"] - calls("info"),
        scripts=calls("evalsha", "eval", "fcall"),
        publishes=calls("publish", "spublish"),
        bytes_in=stats["total_net_input_bytes"],
        bytes_out=stats["total_net_output_bytes"],
    )


class _Prompts:
    """The prompt process, without the process."""

    def __init__(self) -> None:
        self._maker = SimulatedPromptMaker(context_length=_CONTEXT)

    def call(self, request: ChatRequest, tenant: str) -> asyncio.Future[Prepared]:
        answer: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
        answer.set_result(Prepared(self._maker.prepare(request).tokens, self._maker.plan(request)))
        return answer


class _Engine:
    """The engine's process, without the process; what would pass between is encoded and decoded all the same."""

    def __init__(self, options: SimulatedOptions) -> None:
        self._engine = SimulatedEngine(options, lambda stage: None)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decoder: msgspec.msgpack.Decoder[RawEngineReport] = msgspec.msgpack.Decoder(RawEngineReport)
        self.engine_info = self._engine.engine_info
        self._most = options.max_batch
        self.full = asyncio.Event()

    def __len__(self) -> int:
        return self._engine.gauges().requests

    def add(self, sequence: EngineSequence) -> None:
        self._engine.add(sequence)
        if len(self) == self._most:
            self.full.set()

    def cancel(self, number: int) -> None:
        self._engine.cancel(number)

    def step(self, counted: Walk) -> bytes:
        outputs = self._engine.step()
        report = self._encode(Stepped(tuple(outputs), self._engine.gauges()))
        counted.steps += 1
        counted.tokens += sum(len(output.delta.tokens) for output in outputs if output.delta)
        counted.engine_bytes += len(report)
        return report

    def received(self, report: bytes) -> RawStep:
        return cast(RawStep, self._decoder.decode(report))


@contextmanager
def _calls_counted() -> Iterator[Callable[[], int]]:
    """Count the functions that this thread calls in the block, in Python or built in."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield lambda: count
    finally:
        sys.setprofile(before)
