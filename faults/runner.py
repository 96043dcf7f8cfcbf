"""Runs a scenario: fleet up, load on, faults in, and then the invariants."""

import asyncio
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import redis

from faults.batch import BatchUnderWay
from faults.checker import (
    check_footprints,
    check_history,
    check_keys,
    check_stored,
    check_usage,
    check_vectors,
    counted_usage,
)
from faults.faults import FAULTS
from faults.history import History
from faults.load import Clients, StuckClients
from faults.prompts import VECTORS
from faults.scenario import Fault, Scenario
from faults.service import Service
from faults.witness import Witness
from shared.redis import keys
from tests.support.fleet import Launch, execute
from tests.support.redis_types import at_once

AFFECTED = 0.25
"""Seconds of silence from which a stream counts as touched by a fault."""

_SETTLE = 30.0
"""Seconds after which a fleet that has not come to rest counts as leaking; within them, the time is measured."""


@dataclass
class Result:
    """What a run has shown."""

    scenario: Scenario
    seed: int
    seconds: float
    requests: int = 0
    """Exchanges that the service accepted, whether their clients stayed or not."""
    completed: int = 0
    aborted: int = 0
    refused: int = 0
    """Refusals with 429 or 503; most came back and were answered later."""
    errors: int = 0
    """Accepted requests that ended with an error or a broken connection."""
    gaps: list[float] = field(default_factory=list)
    """The longest silence (seconds) of each stream that a fault touched."""
    settled: float = 0.0
    """Seconds from the last client's end until every slot was free."""
    growth: float = 0.0
    """Most MB by which a process grew."""
    wrong: list[str] = field(default_factory=list)
    """Broken invariants."""

    @property
    def recovery(self) -> tuple[float, float] | None:
        """Median and longest silence of the streams that were touched."""
        return (median(self.gaps), max(self.gaps)) if self.gaps else None


async def run(scenario: Scenario, folder: Path, *, seed: int, launch: Launch = execute) -> Result:
    """Run ``scenario`` with its data in ``folder``; the same ``seed`` sends the same requests. ``launch`` runs
    the processes of the fleet.

    When an invariant is broken, the history is in ``folder/history.jsonl``, the logs in the same folder.
    """
    service = await asyncio.to_thread(Service, scenario, folder, launch)
    history = History()
    result = Result(scenario, seed, 0.0)
    stuck = StuckClients()
    try:
        await service.start()
        clients = Clients(service, history, seed)
        expected = await clients.expected()
        before, used = service.footprints(), await asyncio.to_thread(counted_usage, service.redis())
        witness = Witness(service)
        watching = asyncio.create_task(witness.run())
        looking = asyncio.create_task(_look_for_vectors(service, expected, result.wrong))
        await asyncio.to_thread(stuck.open, service, scenario.stuck)
        batch = BatchUnderWay(service, scenario.batch)
        if scenario.batch:
            await batch.submit()
        began = time.monotonic()
        await _under_load(service, clients, history)
        result.seconds = time.monotonic() - began
        if scenario.batch:
            result.wrong += await batch.complaints()
        result.wrong += await _at_rest(service, result)
        for task in (watching, looking):
            task.cancel()
        if unserved := stuck.unserved():
            result.wrong.append(f"{unserved} of the clients that do not read were never served")
        after = service.footprints()
        result.growth = max(
            (after[pid].megabytes - then.megabytes for pid, then in before.items() if pid in after), default=0
        )
        result.wrong += check_history(history, expected, scenario)
        if not scenario.forgetful:
            counted = await asyncio.to_thread(counted_usage, service.redis())
            result.wrong += check_usage(counted, used, history, batch.usage, scenario)
        await asyncio.to_thread(service.read_stored)
        result.wrong += await asyncio.to_thread(check_stored, service.redis(), history, expected)
        result.wrong += check_footprints(before, after)
        if not scenario.forgetful:
            result.wrong += witness.complaints
        _measure(result, history)
    finally:
        stuck.close()
        left = await service.stop()
    result.wrong += [f"process {pid} is left" for pid in left]
    if result.wrong:
        history.write(folder / "history.jsonl")
    return result


async def _look_for_vectors(service: Service, expected: dict[str, str], wrong: list[str]) -> None:
    """Look into the store's keys again and again until cancelled."""
    while service.scenario.vectors:
        with suppress(redis.RedisError):
            wrong += await asyncio.to_thread(check_vectors, service.redis(), expected)
        await asyncio.sleep(0.2)


async def _under_load(service: Service, clients: Clients, history: History) -> None:
    """Run the clients to their end, and the faults at the same time, as long as there is load."""
    load = asyncio.create_task(clients.run())
    poison = [asyncio.create_task(clients.poison()) for _ in range(service.scenario.poison)]
    faults = [asyncio.create_task(_inflict(service, fault, history, load)) for fault in service.scenario.faults]
    try:
        await load
        await asyncio.gather(*poison, *faults)
    finally:
        for task in (load, *poison, *faults):
            task.cancel()


async def _inflict(service: Service, fault: Fault, history: History, load: "asyncio.Task[None]") -> None:
    await asyncio.sleep(fault.at)
    while not load.done():
        began = time.monotonic()
        async with service.moments if fault.moment != "any" else nullcontext():
            await service.until(lambda: load.done() or service.is_at(fault.moment), f"a moment of '{fault.moment}'")
            history.faults.append((time.monotonic(), fault.action))
            await FAULTS[fault.action](service, fault)
        if not fault.every:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, began + fault.every - time.monotonic())):
                await asyncio.shield(load)


async def _at_rest(service: Service, result: Result) -> list[str]:
    """Wait until no request is anywhere; return what is still there when patience ends."""
    began = time.monotonic()
    while time.monotonic() < began + _SETTLE:
        busy = await asyncio.to_thread(_busy, service)
        if not busy:
            result.settled = time.monotonic() - began
            return await asyncio.to_thread(check_keys, service.redis())
        await asyncio.sleep(0.05)
    return [*busy, *await asyncio.to_thread(check_keys, service.redis())]


def _busy(service: Service) -> list[str]:
    client = service.redis()
    models = service.catalogue or (service.model, *VECTORS)
    waiting = sum(at_once(client.zcard(keys.queue(model))) for model in models)
    claimed = sum(at_once(client.zcard(keys.inflight(model))) for model in models)
    busy = [f"{waiting} jobs wait"] if waiting else []
    busy += [f"{claimed} jobs are claimed"] if claimed else []
    adverts = {one["pid"]: one for one in service.adverts()}
    if service.catalogue:
        nodes = {one["pid"] for one in service.nodes()}
        busy += [f"node {node.pid} is not registered" for node in service.workers if node.pid not in nodes]
    for worker in adverts if service.catalogue else [worker.pid for worker in service.workers]:
        advert = adverts.get(worker)
        if advert is None or (advert["status"] != "serving" and not service.catalogue):
            busy.append(f"worker {worker} does not serve")
        elif advert.get("used", 0) or advert.get("engine_requests", 0):
            busy.append(
                f"worker {worker} uses {advert.get('used', 0)} slots, its engine {advert.get('engine_requests', 0)}"
            )
    return busy


def _measure(result: Result, history: History) -> None:
    for one in history.exchanges:
        if one.outcome == "refused" and one.status in (429, 503):
            result.refused += 1
        elif one.accepted or one.outcome == "aborted":
            result.requests += 1
            result.completed += one.outcome == "completed"
            result.aborted += one.outcome == "aborted"
            result.errors += one.outcome in ("failed", "cut")
        elif one.status:
            result.requests += 1
            result.errors += 1
    for at, _ in history.faults:
        for one in history.exchanges:
            if one.outcome == "completed" and one.streamed and (gap := one.longest_gap(at, at + 5)) > AFFECTED:
                result.gaps.append(gap)
