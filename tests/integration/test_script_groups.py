"""Every script touches the keys of one group, so that a cluster of stores could hold them."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from shared.redis.client import connect
from tests.support.cluster import Cluster
from tests.support.fleet import free_port
from tests.support.repeated_scripts import ROOT
from tests.support.script_cases import CASES, Client
from tests.support.store_servers import SERVERS, store_server


@pytest.fixture(scope="module", params=[name for name in SERVERS if name != "oldest-valkey"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("cluster"), store_server(request.param))
    running.start()
    yield running
    running.kill()


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    port = free_port()
    async with await asyncio.start_server(cluster.serve, "127.0.0.1", port):
        redis = connect(f"redis://127.0.0.1:{port}/0")
        await redis.flushall()
        yield Client(redis)
        await redis.aclose(close_connection_pool=True)


@pytest.mark.parametrize("script", CASES)
async def test_a_script_touches_one_group_of_keys(cluster: Cluster, client: Client, script: str) -> None:
    for case in CASES[script]:
        await case(client)
        await client.redis.flushall()
    assert script in cluster.ran
    assert cluster.crossed == {}


def test_every_script_declares_its_flags() -> None:
    assert [name for name in CASES if not (ROOT / name).read_text().startswith("#!lua")] == []
