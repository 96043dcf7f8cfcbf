"""``vinoqueue status``: show workers, queues, API replicas and batches as tables or JSON."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import click
import msgspec
from arq.connections import ArqRedis

from api.batches.store import BatchStore
from api.fleet.document import BatchState, batch_entry
from cli.base.instances import store_option
from cli.base.output import echo
from cli.base.progress import terminal
from cli.base.store_reader import read_store
from cli.monitor.tables import Table, aligned
from shared.protocol.queue import JobQueue
from shared.protocol.registry import NodeInfo, ReplicaInfo, WorkerInfo, read_registry, unread_protocols
from shared.redis.store_check import store_problems
from shared.runtime.logs import escaped

REFRESH = 2.0
"""Refresh interval of ``--watch`` in seconds."""

_MAX_BATCHES = 100
"""Maximum number of batches to show."""


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Queue of one model: waiting jobs, claimed jobs (``in_flight``), and the number of workers that serve it."""

    model: str
    waiting: int
    in_flight: int
    workers: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of the service, as read from the registry, the queues and the unfinished batches."""

    workers: list[WorkerInfo]
    nodes: list[NodeInfo]
    queues: list[QueueInfo]
    replicas: list[ReplicaInfo]
    batches: list[BatchState]


@click.command(params=[store_option()])
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--watch", is_flag=True, help=f"Refresh every {REFRESH:.0f} seconds until Ctrl-C; on a terminal in place."
)
def status(redis_url: str, as_json: bool, watch: bool) -> None:
    """Show workers, queues, API replicas and unfinished batches.

    Exits with code 1 if the store can't be reached.

    \b
    vinoqueue status
    vinoqueue status --json | python3 -m json.tool
    """
    for problem in read_store(redis_url, store_problems):
        echo(f"Warning: {problem}", err=True)
    if watch:
        _watch(redis_url, as_json=as_json)
    else:
        echo(_as_text(read_snapshot(redis_url), as_json=as_json))


def _watch(redis_url: str, *, as_json: bool) -> None:
    """Show the state of the service again and again until Ctrl-C: on a terminal in place, elsewhere as text."""
    console = None if as_json else terminal(sys.stdout)
    with suppress(KeyboardInterrupt):
        if console is not None:
            from cli.monitor.live_tables import show

            show(console, lambda: tables(read_snapshot(redis_url), now=time.time()), every=REFRESH)
        while True:
            echo(_as_text(read_snapshot(redis_url), as_json=as_json) + ("" if as_json else "\n"))
            time.sleep(REFRESH)


def _as_text(snapshot: Snapshot, *, as_json: bool) -> str:
    return as_json_line(snapshot) if as_json else as_table(snapshot, now=time.time())


def read_snapshot(redis_url: str) -> Snapshot:
    """Read the state of the service. Raises :class:`click.ClickException` if the store can't be read."""
    return read_store(redis_url, read)


async def read(redis: ArqRedis) -> Snapshot:
    """Return the state of the service."""
    workers, replicas, nodes, known = await read_registry(redis)
    declared = (model.name for node in nodes for model in node.models)
    models = sorted({*(worker.model for worker in workers), *declared, *known})
    queues = []
    for model in models:
        waiting, in_flight = await JobQueue(redis, model).depth()
        serving = sum(worker.model == model and worker.status == "serving" for worker in workers)
        queues.append(QueueInfo(model=model, waiting=waiting, in_flight=in_flight, workers=serving))
    return Snapshot(workers=workers, nodes=nodes, queues=queues, replicas=replicas, batches=await _batches(redis))


async def _batches(redis: ArqRedis) -> list[BatchState]:
    unfinished = await BatchStore(redis, limit=0).current((), limit=_MAX_BATCHES)
    return [batch_entry(batch) for batch in sorted(unfinished, key=lambda batch: batch.created)]


def as_json_line(snapshot: Snapshot) -> str:
    """Return the snapshot as one line of JSON. Unlike the registry records in the store, it includes default values."""
    parts = {
        name: [msgspec.structs.asdict(record) for record in records]
        for name, records in msgspec.structs.asdict(snapshot).items()
    }
    return msgspec.json.encode(parts).decode()


def as_table(snapshot: Snapshot, *, now: float) -> str:
    """Return the snapshot as text tables. ``now`` is a Unix time in seconds, from which ages are computed."""
    return "\n\n".join(aligned(table) for table in tables(snapshot, now=now))


def tables(snapshot: Snapshot, *, now: float) -> list[Table]:
    workers = [
        (
            worker.id,
            worker.host,
            str(worker.pid),
            worker.model,
            worker.device,
            _engine(worker),
            _status(worker, snapshot.replicas),
            f"{worker.used}/{worker.slots}",
            f"{worker.tokens_per_second:.0f}",
            f"{worker.cache_usage:.0%}",
            _age(now - worker.started),
        )
        for worker in snapshot.workers
    ]
    placements = [
        (
            model.name,
            node.host,
            f"{model.status}: {model.detail}" if model.detail else model.status,
            ", ".join(
                [
                    f"{model.memory / 1e9:.1f} of {node.memory / 1e9:.1f} GB",
                    *(
                        f"{device} {size / 1e9:.1f} of {node.devices.get(device, 0) / 1e9:.1f} GB"
                        for device, size in model.device_memory.items()
                    ),
                ]
            ),
            f"{model.load_seconds:.0f}s" if model.load_seconds else "-",
            model.keep,
        )
        for node in snapshot.nodes
        for model in node.models
    ]
    found = {worker.model: worker.formats for worker in snapshot.workers if worker.formats}
    formats = [
        (model, form.tool_parser, form.reasoning_parser, ", ".join((*form.replaced, *form.warnings)) or "-")
        for model, form in sorted(found.items())
    ]
    queues = [(queue.model, str(queue.waiting), str(queue.in_flight), str(queue.workers)) for queue in snapshot.queues]
    replicas = [
        (replica.id, replica.host, str(replica.pid), replica.address, str(replica.streams), _age(now - replica.started))
        for replica in snapshot.replicas
    ]
    batches = [
        (
            batch.id,
            batch.status,
            f"{batch.completed + batch.failed}/{batch.total}",
            str(batch.failed),
            batch.model or "-",
            _age(now - batch.created),
        )
        for batch in snapshot.batches
    ]
    worker_head = ("WORKER", "HOST", "PID", "MODEL", "DEVICE", "ENGINE", "STATUS", "SLOTS", "TOKENS/S", "CACHE", "UP")
    shown = [
        Table(worker_head, workers, "No workers. Start one: vinoqueue worker"),
        *([Table(("CATALOGUE", "HOST", "STATUS", "MEMORY", "LOADS IN", "KEEP"), placements, "")] if placements else []),
        *([Table(("MODEL", "TOOL CALLS", "REASONING", "REPLACED FOR ITS TEMPLATE"), formats, "")] if formats else []),
        Table(("QUEUE", "WAITING", "IN FLIGHT", "WORKERS"), queues, "No models have been served yet."),
        Table(("REPLICA", "HOST", "PID", "ADDRESS", "STREAMS", "UP"), replicas, "No API replicas."),
        Table(("BATCH", "STATUS", "DONE", "FAILED", "MODEL", "AGE"), batches, "No unfinished batches."),
    ]
    return [table._replace(rows=[[escaped(cell) for cell in row] for row in table.rows]) for table in shown]


def _engine(worker: WorkerInfo) -> str:
    """Return the engine of a worker, with the reason why it has only one slot."""
    return f"stateful: {worker.engine_reason}" if worker.engine == "stateful" else worker.engine


def _status(worker: WorkerInfo, replicas: Sequence[ReplicaInfo]) -> str:
    details = [worker.detail] if worker.detail else []
    if unread := unread_protocols(worker, replicas):
        details.append(f"cannot read jobs of protocol version {', '.join(map(str, unread))}")
    return f"{worker.status}: {'; '.join(details)}" if details else worker.status


def _age(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"
