"""The faults: each is a function of a service and a fault, and returns when the fault has ended."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import redis

from faults.links import SERVICE
from faults.scenario import Fault
from faults.service import Loading, Member, Service
from tests.support.redis_types import command
from tests.support.store import Store
from tests.support.store_servers import store_server

ENGINE = "worker.engine.child"
PROMPTS = "worker.prompt.child"


async def kill_worker(service: Service, fault: Fault) -> None:
    """Kill a worker, or the node at the fault's moment, at once; start another one."""
    at = await asyncio.to_thread(service.nodes_at, fault.moment)  # the store may be frozen
    worker = next((one for one in service.workers if one.pid in at), _worker(service, fault))
    service.workers.remove(worker)
    worker.process.kill()
    service.workers.append(await service.new_worker(worker.model))


async def kill_engine(service: Service, fault: Fault) -> None:
    """Kill a worker's engine process."""
    _send(service.child_of(_worker(service, fault), ENGINE), signal.SIGKILL)


async def kill_loading(service: Service, fault: Fault) -> None:
    """Kill the engine process of a model that a node loads, as the kernel does for lack of memory.

    Returns when the node expects the model to take more.
    """
    found: list[Loading] = []

    def is_found() -> bool:
        found[:] = service.loading(ENGINE)
        return bool(found)

    await service.until(is_found, "an engine process to load a model")
    node, model, engine = found[0]
    before = await asyncio.to_thread(service.memory_of, node, model)
    _send(engine, signal.SIGKILL)
    await service.until(lambda: service.memory_of(node, model) > before, "the node to expect the model to take more")


async def kill_prompt(service: Service, fault: Fault) -> None:
    """Kill a worker's prompt process."""
    _send(service.child_of(_worker(service, fault), PROMPTS), signal.SIGKILL)


async def kill_api(service: Service, fault: Fault) -> None:
    """Kill an API replica at once; start another one."""
    api = service.apis.pop(fault.target % len(service.apis))
    api.process.kill()
    service.apis.append(await service.new_api())


async def freeze_worker(service: Service, fault: Fault) -> None:
    """Stop a worker for a time; its children go on."""
    await _freeze(_worker(service, fault).pid, fault.seconds)


async def freeze_engine(service: Service, fault: Fault) -> None:
    """Stop a worker's engine process for a time, or until the worker replaces it."""
    await _freeze(service.child_of(_worker(service, fault), ENGINE), fault.seconds)


async def drain_worker(service: Service, fault: Fault) -> None:
    """End a worker in good order, after another one has taken its place."""
    async with service.one_at_a_time:
        worker = _worker(service, fault)
        service.workers.append(await service.new_worker(worker.model))
        service.workers.remove(worker)
        await _end(worker)


async def drain_api(service: Service, fault: Fault) -> None:
    """End an API replica in good order, after another one has taken its place."""
    async with service.one_at_a_time:
        api = service.apis[fault.target % len(service.apis)]
        service.apis.append(await service.new_api())
        service.apis.remove(api)
        await _end(api)


async def roll_back(service: Service, fault: Fault) -> None:
    """Return to the first version after an upgrade."""
    async with service.one_at_a_time:
        await asyncio.to_thread(service.roll_back)


async def restart_store(service: Service, fault: Fault) -> None:
    """Kill the store, and start it again on the same files."""
    await asyncio.to_thread(service.fleet.store.kill)
    await asyncio.sleep(fault.seconds)
    await asyncio.to_thread(service.fleet.store.start)


async def freeze_store(service: Service, fault: Fault) -> None:
    """Stop the store for a time."""
    await _freeze(service.fleet.store.pid, fault.seconds)


async def kill_master(service: Service, fault: Fault) -> None:
    """Kill the store for good: a Sentinel promotes its replica."""
    await asyncio.to_thread(service.fleet.store.kill)
    await _promoted(service)


async def hand_over(service: Service, fault: Fault) -> None:
    """Have the replica and the master change places (``FAILOVER``)."""
    port = str(_replica(service).port)
    await asyncio.to_thread(command, service.redis(), "FAILOVER", "TO", "127.0.0.1", port)
    await _promoted(service)


async def hand_over_by_sentinel(service: Service, fault: Fault) -> None:
    """Have a Sentinel promote the replica of a healthy master, without asking that one."""
    await _sentinel_failover(service)


async def hand_over_coordinated(service: Service, fault: Fault) -> None:
    """The same in agreement with the master (Valkey 9)."""
    await _sentinel_failover(service, "COORDINATED")


async def _sentinel_failover(service: Service, *how: str) -> None:
    assert service.links.standby is not None
    # The old master is busy for a moment: it must not count as down.
    service.links.standby.ask_sentinel("SET", SERVICE, "down-after-milliseconds", "5000")
    await asyncio.to_thread(service.links.standby.ask_sentinel, "FAILOVER", SERVICE, *how)
    await _promoted(service)


async def upgrade_replica(service: Service, fault: Fault) -> None:
    """Replace the server of the replica by the current one."""
    replica = _replica(service)
    await asyncio.to_thread(replica.stop)
    replica.server = store_server("current-valkey")
    await asyncio.to_thread(replica.start)
    command(replica.client(), "REPLICAOF", "127.0.0.1", str(service.links.master.port))
    assert service.links.standby is not None
    await service.until(service.links.standby.is_ready, "the replica to have the master's data")


async def freeze_master(service: Service, fault: Fault) -> None:
    """Stop the store for good, after its replica has received nothing for a time: a Sentinel promotes the replica."""
    command(_standby(service), "CONFIG", "SET", "masterauth", "wrong")
    command(service.redis(), "CLIENT", "KILL", "TYPE", "replica")
    await asyncio.sleep(fault.seconds)
    _send(service.fleet.store.pid, signal.SIGSTOP)
    await _promoted(service)
    await asyncio.to_thread(service.fleet.store.kill)


async def cut_worker(service: Service, fault: Fault) -> None:
    """Cut the network between one worker and the store."""
    await _cut([_worker(service, fault)], fault.seconds)


async def cut_all(service: Service, fault: Fault) -> None:
    """Cut the network between everybody and the store."""
    await _cut([*service.workers, *service.apis], fault.seconds)


async def slow_store(service: Service, fault: Fault) -> None:
    """Delay what goes to and from the store by 20 ms."""
    for proxy in service.links.proxies:
        proxy.delay = 0.02
    await asyncio.sleep(fault.seconds)
    for proxy in service.links.proxies:
        proxy.delay = 0.0


async def fill_store(service: Service, fault: Fault) -> None:
    """Set the memory limit below what is used."""
    client = service.redis()
    command(client, "CONFIG", "SET", "maxmemory", "1")
    await asyncio.sleep(fault.seconds)
    command(client, "CONFIG", "SET", "maxmemory", "0")


async def demote_store(service: Service, fault: Fault) -> None:
    """Make the store a replica of a master that is not there."""
    client = service.redis()
    command(client, "REPLICAOF", "127.0.0.1", "1")
    await asyncio.sleep(fault.seconds)
    command(client, "REPLICAOF", "NO", "ONE")


async def change_password(service: Service, fault: Fault) -> None:
    """Ask for a password that nobody has, and close all connections."""
    client = service.redis()
    command(client, "CONFIG", "SET", "requirepass", "another")
    command(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    command(client, "CLIENT", "KILL", "TYPE", "pubsub")
    await asyncio.sleep(fault.seconds)
    command(client, "CONFIG", "SET", "requirepass", "")


FAULTS: dict[str, Callable[[Service, Fault], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        kill_worker, kill_engine, kill_loading, kill_prompt, kill_api, freeze_worker, freeze_engine, drain_worker,
        drain_api, roll_back, restart_store, freeze_store, kill_master, freeze_master, cut_worker, cut_all, slow_store,
        fill_store, demote_store, change_password, hand_over, hand_over_by_sentinel, hand_over_coordinated,
        upgrade_replica,
    )
}  # fmt: skip


def _worker(service: Service, fault: Fault) -> Member:
    return service.workers[fault.target % len(service.workers)]


def _replica(service: Service) -> Store:
    assert service.links.standby is not None, "the scenario has no replica"
    return service.links.standby.replica


def _standby(service: Service) -> "redis.Redis":
    return _replica(service).client()


async def _promoted(service: Service) -> None:
    def promoted() -> bool:
        # A Sentinel ends all of a replica's connections when it promotes it, ours among them.
        with suppress(redis.RedisError):
            return bool(command(_standby(service), "ROLE")[0] == b"master")
        return False

    await service.until(promoted, "the replica to be promoted")
    service.links.hand_over()


async def _end(member: Member) -> None:
    code = await asyncio.to_thread(member.process.stop)
    assert code == 0, f"a process that was drained ended with {code}:\n{member.process.log.read_text()}"


def _send(pid: int | None, number: int) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


async def _freeze(pid: int | None, seconds: float) -> None:
    _send(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        _send(pid, signal.SIGCONT)


async def _cut(members: list[Member], seconds: float) -> None:
    proxies = [one.proxy for one in members if one.proxy is not None]
    for proxy in proxies:
        proxy.silence()
    await asyncio.sleep(seconds)
    for proxy in proxies:
        proxy.restore()
