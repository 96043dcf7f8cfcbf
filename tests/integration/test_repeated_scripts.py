"""Every script bears being run twice with the same arguments, because a command whose reply is lost is repeated."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shared.redis.client import connect
from tests.support.fleet import free_port
from tests.support.repeated_scripts import repeated, scripts_of_the_source_tree
from tests.support.script_cases import CASES, Case, Client
from tests.support.store import Store
from tests.support.store_servers import SERVERS, store_server

OTHER_REPLIES = {
    "shared/protocol/queue/release.lua": "the number of jobs is only logged",
    "shared/protocol/queue/reap.lua": "the jobs are only logged",
}
"""Scripts whose second run leaves the store as it is but has another reply, and why that does no harm."""

OTHER_RUNS = {
    "shared/protocol/queue/claim.lua": "a second claim. The jobs of the first wait until their lease ends",
    "shared/protocol/queue/emit.lua": "readers skip events that they have; after an end, the lease is stale",
    "api/batches/claim.lua": "a second claim. The batches of the first wait until their lease ends",
}
"""Scripts whose second run differs, and why that does no harm."""


@pytest.fixture(scope="module", params=SERVERS)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = Path(tmp_path_factory.mktemp("store"))
    running = Store(folder, free_port(), server=store_server(request.param))
    running.start()
    yield running
    running.kill()


@pytest.fixture
async def client(store: Store) -> AsyncIterator[Client]:
    redis = connect(store.url)
    await redis.flushall()
    yield Client(redis)
    await redis.aclose(close_connection_pool=True)


def test_every_script_has_a_case() -> None:
    assert CASES.keys() == scripts_of_the_source_tree().keys()


@pytest.mark.parametrize(
    ("script", "case"), [(script, case) for script, cases in CASES.items() for case in cases],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
async def test_a_second_run_changes_nothing(client: Client, script: str, case: Case) -> None:
    with repeated() as repeats:
        await case(client)
    assert script in repeats.ran
    if script not in OTHER_RUNS:
        found = repeats.differences[script]
        assert [one for one in found if not (script in OTHER_REPLIES and one.startswith("reply"))] == []
