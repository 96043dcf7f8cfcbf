"""The node's process: construction and shutdown."""

import asyncio
import logging
import os
import signal
import uuid

from shared.protocol.registry import LeaseMismatch
from shared.redis.client import connect
from shared.runtime.event_loop import on_signal
from shared.runtime.event_loop import run as run_loop
from shared.runtime.settings import NodeSettings
from shared.runtime.tasks import cancel_all, keep_running
from worker.engine.host import free_memory
from worker.jobs.joining import join_fleet
from worker.node.catalogue import CatalogueError
from worker.node.devices import HOST, gpu_memory
from worker.node.memory import Measurements
from worker.node.node import Node

logger = logging.getLogger(__name__)

_SHARE = 0.9
"""Share of the free memory that models may take by default."""


def run(settings: NodeSettings) -> int:
    """Run a node until SIGINT or SIGTERM. Returns the exit code: 1 when it can't start."""
    try:
        return run_loop(_serve(settings))
    except (CatalogueError, LeaseMismatch) as error:
        logger.error("%s", error)
        return 1


async def _serve(settings: NodeSettings) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        on_signal(number, stopping.set)
    free = free_memory()
    host = int(settings.memory) or int(_SHARE * free)
    if host > free:
        logger.warning("--memory is %.1f GB, but only %.1f GB are free: models may be killed", host / 1e9, free / 1e9)
    capacity = {HOST: host, **gpu_memory(), **settings.device_budgets}
    redis = connect(settings.redis_url)
    name = f"{settings.node}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    try:
        node = Node(name, settings, redis, Measurements(), pid=os.getpid(), capacity=capacity)
        on_signal(signal.SIGHUP, node.reload)
        await join_fleet(redis, settings.redis_url, lease=settings.lease, stopping=stopping)
        for where, size in capacity.items():
            logger.info("node %s has %.1f GB for models on %s", name, size / 1e9, where)
        running = asyncio.create_task(keep_running("node", node.run), name="node")
        await stopping.wait()
        await cancel_all({running})
        await node.stop(settings.swap_drain)
    finally:
        await redis.aclose(close_connection_pool=True)
    return 0
