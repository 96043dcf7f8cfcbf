"""What replicas make of the models that nodes declare."""

import json
from typing import Any

import pytest
from arq.connections import ArqRedis

from api.chat.queue_events import QueueEvents
from api.dialects.base.models import render_model
from api.keys import ApiKey
from api.models.directory import Directory
from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.queue import JobQueue
from shared.protocol.registry import DeclaredModel, NodeInfo, announce
from tests.support.answers import job_queues
from tests.support.jobs import WORKER, enqueue


def node(name: str, started: float = 1.0, **fields: Any) -> NodeInfo:
    model = DeclaredModel(**({"name": "tiny", "source": "default", "digest": "d"} | fields))
    return NodeInfo(id=name, host=name, pid=1, started=started, memory=1, models=(model,))


async def directory(redis: ArqRedis, *nodes: NodeInfo) -> Directory:
    for one in nodes:
        await announce(redis, one, lease=60)
    found = Directory(redis)
    await found.refresh()
    return found


async def test_a_declared_model_is_listed_and_requests_for_it_may_wait(redis: ArqRedis) -> None:
    found = await directory(redis, node("a", aliases=("small",)))
    assert {name: info.state for name, info in found.fleet.listed().items()} == {
        "small": "unloaded",
        "tiny": "unloaded",
    }
    await found.require("small", None)
    assert found.without_worker_for("tiny") == 0


@pytest.mark.parametrize(
    ("states", "state"),
    [(("failed", "loading"), "loading"), (("unloaded", "loaded"), "loaded"), (("unloaded", "failed"), "unloaded")],
)
async def test_its_state_is_the_best_of_all_nodes(redis: ArqRedis, states: tuple[str, str], state: str) -> None:
    found = await directory(redis, *(node(str(at), status=status) for at, status in enumerate(states)))
    assert found.fleet.listed()["tiny"].state == state


async def test_a_model_that_no_node_can_load_is_refused_with_the_reasons(redis: ArqRedis) -> None:
    nodes = node("a", status="failed", detail="too large"), node("b", status="failed", detail="no such file")
    found = await directory(redis, *nodes)
    with pytest.raises(RequestRefused, match="a: too large; b: no such file") as caught:
        await found.require("tiny", None)
    assert caught.value.problem.kind is ProblemKind.NO_WORKER


async def test_a_worker_outside_of_the_nodes_serves_it_nevertheless(redis: ArqRedis) -> None:
    await announce(redis, WORKER, lease=60)
    found = await directory(redis, node("a", status="failed", detail="too large"))
    await found.require("tiny", None)
    assert found.fleet.listed()["tiny"].state == "loaded"


async def test_the_newest_node_has_precedence(redis: ArqRedis) -> None:
    found = await directory(redis, node("a", 2.0, aliases=("new",)), node("b", 1.0, aliases=("old",)))
    assert sorted(found.fleet.listed()) == ["new", "tiny"]


async def test_a_refusal_lists_the_models_that_the_key_may_use(redis: ArqRedis) -> None:
    found = await directory(redis, node("a", aliases=("small",)))
    with pytest.raises(RequestRefused, match=r"Models: small, tiny\.$"):
        await found.require("other", None)
    with pytest.raises(RequestRefused, match=r"Models: none\.$"):
        await found.require("other", ApiKey(id="k", name="k", digest="d", models=("large",)))


async def test_the_list_says_what_a_load_waits_for(redis: ArqRedis) -> None:
    found = await directory(redis, node("a", status="loading", detail="1 of 2 GB"), node("b", detail="no request"))
    assert json.loads(render_model(found.fleet.listed()["tiny"]))["status"] == {
        "value": "loading",
        "nodes": 1,
        "detail": "a: 1 of 2 GB",
    }


async def test_waiting_clients_are_told_when_a_loading_model_is_expected(redis: ArqRedis, queue: JobQueue) -> None:
    nodes = [node(name, status="loading", ready_in=seconds) for name, seconds in (("a", 7.0), ("b", 4.5), ("c", 0.0))]
    events = QueueEvents(job_queues(redis), await directory(redis, *nodes))
    await enqueue(queue, "a")
    comment = await events.place("tiny", "a")
    assert json.loads(comment[2:])["queue"] == {"request": "a", "ahead": 0, "expected_wait": 4.5}


async def test_the_list_names_nodes_with_other_entries(redis: ArqRedis) -> None:
    nodes = node("a", 3.0, status="loaded"), node("b", 2.0, status="loaded", digest="e"), node("c", 1.0)
    listed = (await directory(redis, *nodes)).fleet.listed()["tiny"]
    assert (listed.nodes, listed.detail) == (2, "b has another entry for it than a")


async def test_streams_that_waited_for_such_a_model_end_with_the_reasons_too(redis: ArqRedis) -> None:
    found = await directory(redis, node("a", status="failed", detail="too large"))
    assert "a: too large" in found.why_without_worker("tiny")
    assert "lost its last worker" in found.why_without_worker("other")


@pytest.mark.parametrize(
    ("status", "detail", "why"),
    [
        ("loading", "3 requests wait", "still loading at the queue timeout. a: 3 requests wait."),
        ("unloaded", "no request for a while", "not loaded within the queue timeout. Other models use the memory"),
        ("failed", "no such file", "can't be loaded at the moment. a: no such file."),
        ("loaded", "1 request waits", "No worker became free within the queue timeout."),
    ],
)
async def test_a_queue_timeout_says_what_the_model_waited_for(
    redis: ArqRedis, status: str, detail: str, why: str
) -> None:
    found = await directory(redis, node("a", status=status, detail=detail))
    assert why in found.why_waited("tiny")
