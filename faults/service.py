"""The processes of one run: started, found again, and looked into."""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import redis

from faults import processes
from faults.links import Links
from faults.prompts import VECTORS
from faults.proxy import Proxy
from faults.scenario import Moment, Scenario
from faults.versions import next_version
from shared.protocol.version import PROTOCOL
from shared.redis import keys
from tests.support.eventually import eventually, wait_until
from tests.support.fleet import Fleet, Launch, Process, free_port
from tests.support.paths import MODELS
from tests.support.pictures import SHAPES_MODEL
from tests.support.redis_types import at_once, command
from tests.support.store_servers import store_server


@dataclass(eq=False)
class Member:
    """A worker or an API replica of the fleet."""

    process: Process
    proxy: Proxy | None
    port: int = 0
    """Where it listens; 0 for a worker."""
    model: str = ""
    """The model of a worker, if it is one of :data:`VECTORS`."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.popen.pid


class Loading(NamedTuple):
    """A model that a node loads in ``process``."""

    node: str
    model: str
    process: int


class Service:
    """Waits and starts happen in threads, so that clients and proxies go on meanwhile."""

    def __init__(self, scenario: Scenario, folder: Path, launch: Launch) -> None:
        self.scenario = scenario
        self.model = scenario.model
        self.catalogue = {f"model-{number}": source for number, source in enumerate(scenario.catalogue)}
        """The models of the nodes, with their sources; empty where workers serve one model."""
        self.workers: list[Member] = []
        self.apis: list[Member] = []
        """Those that take requests."""
        self.one_at_a_time = asyncio.Lock()
        """Held while a process is replaced in good order."""
        self.moments = asyncio.Lock()
        """Held by a fault that waits for a moment, until it has ended."""
        self._engines = itertools.cycle(scenario.engines)
        self.fleet = Fleet(folder, *scenario.store, store_server=store_server(scenario.server), launch=launch)
        self.links = Links(scenario.link, self.fleet.store, folder)
        self._environment = {"VINOQUEUE_NODE": f"faults-{free_port()}-{time.monotonic_ns()}"}

    async def start(self) -> None:
        """Start the workers and the API replicas, with the scenario's first version if it has one."""
        self._run_version(self.scenario.first_version)
        if self.scenario.ballast:
            await asyncio.to_thread(self._load_ballast)
        if self.scenario.locked:
            await self._start_locked_out()
            return
        self.workers += await asyncio.gather(*(self.new_worker() for _ in range(self.scenario.workers)))
        if self.scenario.vectors:
            self.workers += await asyncio.gather(*map(self.new_worker, VECTORS))
        self.apis += await asyncio.gather(*(self.new_api() for _ in range(self.scenario.apis)))
        self._run_version(next_version(self.fleet.folder / "next") if self.scenario.upgrade else "")

    def roll_back(self) -> None:
        """Run the first version again in processes that start from now on. All others must run the next one."""
        outdated = [one["id"] for one in self.adverts() if one.get("protocols", [PROTOCOL]) == [PROTOCOL]]
        assert not outdated, f"workers of the first version are left: {outdated}"
        self._run_version(self.scenario.first_version)

    async def stop(self) -> list[int]:
        """End everything. Returns the processes that are left all the same."""
        try:
            await asyncio.to_thread(self.fleet.stop)
        finally:
            await self.links.close()
        return processes.with_environment(self._environment["VINOQUEUE_NODE"])

    async def new_worker(self, vectors: str = "") -> Member:
        """Start a worker and wait until it serves; or a node, and wait until it is registered.

        ``vectors`` is its model if that is one of :data:`VECTORS`.
        """
        engine = ["--model", f"{vectors}={MODELS / VECTORS[vectors]}"] if vectors else self._engine()
        url, proxy = await self.links.open()
        if self.catalogue:
            file = self.fleet.folder / "models.toml"
            entry = '[models.{}]\nsource = "{}"\nmemory = "60MB"\n'
            file.write_text("".join(entry.format(name, source) for name, source in self.catalogue.items()))
            options = ["--models", str(file), "--memory", "100MB", "--max-batch", str(self.scenario.slots)]
            process = self._start("node", *options, *engine, *self.scenario.worker_options, url=url)
            await self.until(lambda: process.popen.pid in {one["pid"] for one in self.nodes()}, "the node to register")
            return Member(process, proxy)
        arguments = ["--drain", "10", "--max-batch", str(self.scenario.slots), *engine]
        process = self._start("worker", *arguments, *self.scenario.worker_options, url=url)
        await self.until(
            lambda: any(one["pid"] == process.popen.pid and one["status"] == "serving" for one in self.adverts()),
            "the worker to serve",
        )
        return Member(process, proxy, model=vectors)

    async def new_api(self) -> Member:
        """Start an API replica and wait until it is ready."""
        url, proxy = await self.links.open()
        port = free_port()
        process = self._start("api", "--port", str(port), *self.scenario.api_options, url=url)

        def ready() -> bool:
            self.fleet.port = port
            return self.fleet.status("/ready") == 200

        await self.until(ready, "the API replica to be ready")
        return Member(process, proxy, port)

    def read_stored(self) -> None:
        """List the stored completions: readers make the documents of replicas that have gone."""
        for api in self.apis:
            if api.process.popen.poll() is None:
                self.fleet.port = api.port
                self.fleet.request("GET", "/v1/chat/completions")

    def redis(self) -> "redis.Redis":
        """A client of the store; after a failover, of the new master."""
        return self.links.master.client()

    def adverts(self) -> list[dict[str, Any]]:
        """What live workers advertise."""
        return self._records("worker")

    def nodes(self) -> list[dict[str, Any]]:
        """What live nodes advertise."""
        return self._records("node")

    def is_at(self, moment: Moment) -> bool:
        """Whether some node, or some stream, is at ``moment``."""
        if moment == "parked":
            client = self.redis()
            try:
                waiting = [job for model in self.catalogue for job in at_once(client.zrange(keys.queue(model), 0, -1))]
                return any(client.exists(keys.journal(job.decode())) for job in waiting)
            except redis.RedisError:
                return False
        return moment == "any" or bool(self.nodes_at(moment))

    def nodes_at(self, moment: Moment) -> set[int]:
        """Return the processes of the nodes that load or unload a model at this ``moment``."""
        return {node["pid"] for node in self.nodes() if any(model.get("status") == moment for model in node["models"])}

    def _records(self, kind: str) -> list[dict[str, Any]]:
        client = self.redis()
        try:
            found = [client.get(key) for key in client.scan_iter(f"vinoqueue:{kind}:*")]
        except redis.RedisError:
            return []
        finally:
            client.close()
        return [json.loads(info) for info in found if isinstance(info, bytes)]

    def child_of(self, worker: Member, module: str) -> int | None:
        """The process of ``worker`` that runs ``module``."""
        return processes.child(worker.pid, module)

    def loading(self, module: str) -> Iterator[Loading]:
        """The models that nodes load, with the process of each worker that runs ``module``."""
        for one in self.adverts():
            if one["status"] == "loading" and (process := processes.child(one["pid"], module)):
                yield Loading(one["id"].rpartition("/")[0], one["model"], process)

    def memory_of(self, node: str, model: str) -> int:
        """The bytes that ``node`` expects ``model`` to take; 0 while the node is not registered."""
        declared = (entry for one in self.nodes() if one["id"] == node for entry in one["models"])
        return next((entry["memory"] for entry in declared if entry["name"] == model), 0)

    def footprints(self) -> dict[int, processes.Footprint]:
        """What each member holds, by process id."""
        living = (one.pid for one in [*self.workers, *self.apis] if one.process.popen.poll() is None)
        return {pid: processes.footprint(pid) for pid in living}

    async def until(self, condition: Callable[[], object], what: str) -> float:
        """Wait until ``condition`` is true; return the seconds it took. Fails with the logs when it never is."""
        began = time.monotonic()
        await eventually(lambda: asyncio.to_thread(condition), what, details=self.fleet.logs)
        return time.monotonic() - began

    async def _start_locked_out(self) -> None:
        """Start everybody while the store asks for a password that nobody has; then put it right."""
        store = self.redis()
        command(store, "CONFIG", "SET", "requirepass", "another")
        starting = [
            *(asyncio.create_task(self.new_worker()) for _ in range(self.scenario.workers)),
            *(asyncio.create_task(self.new_api()) for _ in range(self.scenario.apis)),
        ]
        await asyncio.sleep(self.scenario.locked)
        assert not any(one.done() for one in starting), "somebody is ready without the store"
        assert all(one.popen.poll() is None for one in self.fleet.processes), f"somebody ended:\n{self.fleet.logs()}"
        command(store, "CONFIG", "SET", "requirepass", "")
        members = await asyncio.gather(*starting)
        self.workers += members[: self.scenario.workers]
        self.apis += members[self.scenario.workers :]

    def _load_ballast(self) -> None:
        """Write keys into a database that nobody looks at, and from there into the append-only file."""
        with redis.Redis(port=self.fleet.store.port, db=1) as store:
            command(store, "DEBUG", "POPULATE", str(self.scenario.ballast), "ballast", "16")
            command(store, "BGREWRITEAOF")
            wait_until(lambda: _is_rewritten(store.info("persistence")), "the append-only file")

    def _run_version(self, folder: str) -> None:
        """Run the source in ``folder`` in processes that start from now on; the current one if it is empty."""
        self._environment.pop("PYTHONPATH", None)
        if folder:
            self._environment["PYTHONPATH"] = folder

    def _engine(self) -> list[str]:
        match self.model:
            case "simulated":
                model = () if self.catalogue else ("--model", "simulated")
                return ["--engine", "simulated", *model, "--sim-step", str(self.scenario.step)]
            case "default":
                return ["--model", "default=default", "--engine", next(self._engines)]
            case "pictures":
                return ["--model", f"pictures={SHAPES_MODEL}", "--cache-size", "1"]

    def _start(self, *arguments: str, url: str) -> Process:
        return self.fleet.start(*arguments, VINOQUEUE_REDIS_URL=url, **self._environment)


def _is_rewritten(persistence: Any) -> bool:
    return not persistence["aof_rewrite_scheduled"] and not persistence["aof_rewrite_in_progress"]
