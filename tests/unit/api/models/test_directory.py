"""What a replica believes about the fleet, in an outage of the store too."""

import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from arq.connections import ArqRedis
from fakeredis import FakeServer
from redis.exceptions import ConnectionError

from api.dialects.ovms import render_config
from api.models.directory import Directory, Fleet
from shared.protocol.registry import WorkerInfo, announce, withdraw
from tests.support.jobs import WORKER


async def test_a_model_is_without_worker_from_when_its_last_one_was_seen(redis: ArqRedis) -> None:
    directory = Directory(redis)
    await announce(redis, WORKER, lease=60)
    await directory.refresh()
    assert directory.without_worker_for("tiny") == 0
    await withdraw(redis, WorkerInfo, WORKER.id)
    await directory.refresh()
    assert 0 < directory.without_worker_for("tiny") < 60


async def test_an_outage_of_the_store_is_no_absence_of_workers(
    redis: ArqRedis, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(redis)
    await announce(redis, WORKER, lease=60)
    await directory.refresh()
    server.connected = False
    with pytest.raises(ConnectionError):
        await directory.refresh()
    directory.reachable = False
    server.connected = True
    # The worker comes back a little later than this replica, after an hour.
    await withdraw(redis, WorkerInfo, WORKER.id)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600)
    await directory.refresh()
    assert directory.without_worker_for("tiny") == 0


async def test_jobs_for_free_slots_do_not_wait(redis: ArqRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory(redis)
    now = 0.0
    monkeypatch.setattr("api.models.directory.time", SimpleNamespace(monotonic=lambda: now))
    assert directory.jobs_within("tiny", 60) is None
    for second in range(20):
        now = float(second)
        # 320 tokens per second, in answers of 320 tokens: a job per second leaves the queue.
        full = msgspec.structs.replace(WORKER, slots=16, used=16, tokens=320 * second, requests=second)
        await announce(redis, full, lease=60)
        await directory.refresh()
    assert directory.jobs_within("tiny", 3) == 3
    await announce(redis, msgspec.structs.replace(full, used=4), lease=60)
    await directory.refresh()
    assert directory.jobs_within("tiny", 3) == 3 + 12


def worker(model: str, *aliases: str, **fields: Any) -> WorkerInfo:
    return msgspec.structs.replace(WORKER, id=f"worker of {model}", model=model, aliases=aliases, **fields)


async def look(redis: ArqRedis, *workers: WorkerInfo) -> Fleet:
    for one in workers:
        await announce(redis, one, lease=60)
    directory = Directory(redis)
    await directory.refresh()
    return directory.fleet


async def test_every_name_of_a_model_is_listed_and_means_the_model(redis: ArqRedis) -> None:
    fleet = await look(redis, worker("tiny", "small", "org/smallest"), worker("large"))
    assert {name: info.name for name, info in fleet.listed().items()} == {
        "large": "large", "org/smallest": "org/smallest", "small": "small", "tiny": "tiny",
    }  # fmt: skip
    assert [fleet.own_name(name) for name in ("tiny", "small", "org/smallest", "unknown")] == [
        "tiny", "tiny", "tiny", "unknown",
    ]  # fmt: skip
    assert list(fleet.serving()) == ["large", "tiny"]


async def test_an_own_name_comes_before_an_alias(redis: ArqRedis) -> None:
    fleet = await look(redis, worker("a", "b", "c"), worker("b", "a", "c"))
    assert [fleet.own_name(name) for name in ("a", "b", "c")] == ["a", "b", "b"]
    assert list(fleet.listed()) == ["a", "b", "c"]


async def test_an_alias_moves_to_the_newest_model_once_it_serves(redis: ArqRedis) -> None:
    old, new = worker("chat-2026-10", "chat"), worker("chat-2026-11", "chat")
    loading = msgspec.structs.replace(new, status="loading")
    assert (await look(redis, old, loading)).own_name("chat") == "chat-2026-10"
    assert (await look(redis, old, new)).own_name("chat") == "chat-2026-11"
    draining = msgspec.structs.replace(new, status="draining")
    assert (await look(redis, old, draining)).own_name("chat") == "chat-2026-10"


async def test_a_live_workers_alias_comes_before_a_model_of_the_past(redis: ArqRedis) -> None:
    await announce(redis, worker("old", "older"), lease=60)
    await withdraw(redis, WorkerInfo, worker("old").id)
    assert (await look(redis)).own_name("older") == "old"
    fleet = await look(redis, worker("new", "old", "older"))
    assert [fleet.own_name(name) for name in ("old", "older")] == ["new", "new"]


@pytest.mark.parametrize(("status", "loading"), [("loading", True), ("draining", False), ("serving", False)])
async def test_a_model_that_none_has_served_yet_is_loading(redis: ArqRedis, status: str, loading: bool) -> None:
    fleet = await look(redis, worker("tiny", status=status))
    assert fleet.loading("tiny") is loading
    assert not fleet.loading("unknown")


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([worker("tiny", logits=True), worker("tiny", logits=True)], True),
        ([worker("tiny", logits=True), worker("tiny")], False),
        ([worker("tiny", logits=True), worker("tiny", status="loading")], True),
        ([worker("tiny", logits=True), worker("tiny", status="draining")], True),
        ([worker("tiny", logits=True), worker("other")], True),
    ],
)
def test_fields_that_need_logits_are_served_if_no_worker_that_may_claim_the_job_lacks_them(
    workers: list[WorkerInfo], expected: bool
) -> None:
    assert Fleet(tuple(workers)).has_logits("tiny") is expected


@pytest.mark.parametrize(
    ("status", "state"), [("serving", "AVAILABLE"), ("loading", "LOADING"), ("failing", "LOADING")]
)
async def test_the_model_servers_config_says_whether_a_worker_serves_a_model_now(
    redis: ArqRedis, status: str, state: str
) -> None:
    served = worker("a", "b")
    fleet = await look(redis, served, msgspec.structs.replace(served, status=status))
    config = msgspec.json.decode(render_config(fleet.listed().values(), fleet.loaded()))
    assert {name: model["model_version_status"][0]["state"] for name, model in config.items()} == {
        "a": state,
        "b": state,
    }
