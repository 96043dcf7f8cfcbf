"""``vinoqueue usage`` on a simulated store."""

import asyncio
import time

import pytest
from click.testing import CliRunner
from fakeredis import FakeAsyncRedis, FakeServer

from cli.main import main
from shared.protocol.usage import DAY, UsageCounts
from shared.redis import keys

TODAY = int(time.time()) // DAY
USED = UsageCounts(requests=1, prompt_tokens=10, completion_tokens=5)


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer()
    monkeypatch.setattr("cli.base.instances.running", list)
    monkeypatch.setattr("cli.base.store_reader.connect", lambda *_, **__: FakeAsyncRedis(server=server))

    async def fill() -> None:
        redis = FakeAsyncRedis(server=server)
        for day in (TODAY - 500, TODAY - 40, TODAY):
            for field in ("key-1 other tiny", "key-1 batch tiny", "key-2 other a b"):
                await redis.hset(keys.usage(str(day)), field, USED.encode())  # type: ignore[misc]
        await redis.hset(keys.usage(str(TODAY)), "damaged", "x")  # type: ignore[misc]

    asyncio.run(fill())


def usage(*arguments: str) -> list[list[str]]:
    outcome = CliRunner().invoke(main, ["usage", *arguments, "--csv"])
    assert outcome.exit_code == 0, outcome.output
    return [line.split(",") for line in outcome.stdout.splitlines()]


def test_by_key_since_the_first_of_the_month() -> None:
    head, first, second = usage()
    assert head[:5] == ["key", "name", "requests", "prompt_tokens", "cached_tokens"]
    assert (first[:4], second[:4]) == (["key-1", "", "2", "20"], ["key-2", "", "1", "10"])


def test_by_several_fields_since_a_day() -> None:
    since = time.strftime("%Y-%m-%d", time.gmtime((TODAY - 40) * DAY))
    _, *rows = usage("--by", "day", "--by", "model", "--since", since)
    assert [row[:3] for row in rows[:2]] == [[since, "a b", "1"], [since, "tiny", "2"]]
    assert len(rows) == 4


def test_usage_is_read_as_far_back_as_it_is_kept() -> None:
    _, *rows = usage("--by", "day", "--since", "2000-01-01")
    assert len(rows) == 2


def test_a_table_without_csv() -> None:
    outcome = CliRunner().invoke(main, ["usage", "--by", "model"])
    assert outcome.stdout.splitlines()[0].split()[:3] == ["model", "requests", "prompt"]
