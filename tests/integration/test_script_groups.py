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

CROSSING = {name for name in CASES if name.startswith("api/stored/")}
"""Scripts that still touch two groups. None may be added."""


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
    failed = ""
    for case in CASES[script]:
        try:
            await case(client)
        except Exception as error:
            failed = failed or repr(error)
        await client.redis.flushall()
    if script in CROSSING:
        assert script in cluster.crossed or script not in cluster.ran, "it has become clean: remove it from the list"
    else:
        assert script in cluster.ran
        assert script not in cluster.crossed, cluster.crossed[script]
        assert not failed or CROSSING, failed


def test_every_script_declares_its_flags() -> None:
    assert [name for name in CASES if not (ROOT / name).read_text().startswith("#!lua")] == []
