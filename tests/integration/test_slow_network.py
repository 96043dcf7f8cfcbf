"""A slow network between a worker and the store: leases do not wait for transfers."""

import asyncio
import io
import threading
from collections.abc import Iterator

import pytest
from PIL import Image

from faults.proxy import Proxy
from tests.support.fleet import SEEING, Fleet
from tests.support.pictures import data_url

BANDWIDTH = 400_000
"""Bytes per second of each connection of the worker."""


@pytest.fixture
def slow_url(empty_fleet: Fleet) -> Iterator[str]:
    """The URL of a slow connection to the fleet's store."""
    proxy = Proxy(empty_fleet.store.port)
    proxy.bandwidth = BANDWIDTH
    started = threading.Event()
    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        await proxy.start()
        started.set()
        await stop.wait()
        await proxy.stop()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    started.wait()
    yield f"redis://127.0.0.1:{proxy.port}/0"
    loops[0].call_soon_threadsafe(stop.set)
    thread.join()


def test_an_image_that_takes_longer_than_a_lease(empty_fleet: Fleet, slow_url: str) -> None:
    """It takes 7 s, a lease lasts 5 s, and a reply of which nothing arrives may take 5 s."""
    fleet = empty_fleet
    worker = fleet.worker(*SEEING, "--lease", "5", "--redis-url", slow_url)
    fleet.api("--lease", "5")
    noise = Image.effect_noise((1700, 1700), 100)
    file = io.BytesIO()
    noise.save(file, "PNG")
    client = fleet.client()
    stream = client.chat.completions.create(
        model="sim", messages=[{"role": "user", "content": "[[tokens 3000]]"}], max_tokens=3000, stream=True
    )
    assert next(stream)
    image = client.chat.completions.create(
        model="sim",
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "[[tokens 5]]"},
                    {"type": "image_url", "image_url": {"url": data_url(file.getvalue())}},
                ],
            }
        ],
    )
    assert image.usage is not None
    assert image.usage.completion_tokens == 5
    stream.close()
    worker.kill()
    assert "lease lost" not in worker.log.read_text()
