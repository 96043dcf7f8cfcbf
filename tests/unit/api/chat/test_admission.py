"""Admission without HTTP: what a key allows, and what a request is taken for."""

from typing import Any

import msgspec
import pytest
from arq.connections import ArqRedis
from fakeredis import FakeServer

from api.build import Parts, build
from api.chat.admission import Admission, AdmittedRequest, LimitReached
from api.keys import ApiKey, Team
from api.keys.store import change, create_team
from shared.protocol.errors import ProblemKind, RequestRefused
from shared.protocol.events import Started
from shared.protocol.registry import announce
from shared.protocol.request import COUNT, ChatRequest, Message, Sampling, Tier
from shared.protocol.usage import DAY
from shared.redis import keys
from shared.redis.clock import store_time
from shared.runtime.settings import ApiSettings
from tests.support.answers import UsageRecorder
from tests.support.eventually import PATIENCE
from tests.support.jobs import WORKER
from tests.support.redis_types import awaitable

CONTEXT = 8192


async def parts_of(redis: ArqRedis, settings: ApiSettings) -> Parts:
    await announce(redis, msgspec.structs.replace(WORKER, context_length=CONTEXT), lease=60)
    parts = build(redis, settings, "api-1")
    await parts.directory.refresh()
    return parts


@pytest.fixture
async def parts(redis: ArqRedis) -> Parts:
    return await parts_of(redis, ApiSettings(queue_timeout=60))


@pytest.fixture
def admission(parts: Parts) -> Admission:
    return parts.chat.admission


def key(**fields: Any) -> ApiKey:
    return ApiKey(id="key-1", digest="0" * 64, **fields)


def chat(tier: Tier | None = None, max_tokens: int | None = 10, n: int = 1) -> ChatRequest:
    return ChatRequest(
        model="tiny",
        messages=(Message(role="user", content="x" * 400),),
        sampling=Sampling(max_tokens=max_tokens),
        tier=tier,
        n=n,
    )


async def refused(admission: Admission, of: ApiKey | None, request: ChatRequest, **headers: str) -> RequestRefused:
    with pytest.raises(RequestRefused) as refusal:
        await admission.admit(of, request, headers)
    return refusal.value


async def test_an_open_service_counts_nothing(admission: Admission, redis: ArqRedis) -> None:
    before = await redis.keys("*")
    assert await admission.admit(None, chat(), {}) == AdmittedRequest(chat())
    assert await redis.keys("*") == before


async def test_a_key_without_limits_costs_no_call(admission: Admission, server: FakeServer) -> None:
    server.connected = False
    ticket = await admission.admit(key(), chat(), {})
    assert (ticket.tenant, ticket.counts, ticket.reservation) == ("key-1", {}, None)


@pytest.mark.parametrize(
    ("of", "expected"), [(None, 50), (key(), 50), (key(default_max_tokens=7), 7), (key(default_max_tokens=900), 900)]
)
async def test_outputs_have_a_default_maximum(redis: ArqRedis, of: ApiKey | None, expected: int) -> None:
    limiting = (await parts_of(redis, ApiSettings(default_max_tokens=50))).chat.admission
    limited = (await limiting.admit(of, chat(max_tokens=None), {})).request
    assert limited.sampling.max_tokens == expected
    assert (await limiting.admit(of, chat(max_tokens=1000), {})).request == chat(max_tokens=1000)
    least = Sampling(min_tokens=2000)
    asked = ChatRequest(model="tiny", messages=chat().messages, sampling=least)
    assert (await limiting.admit(of, asked, {})).request.sampling.max_tokens == 2000


@pytest.mark.parametrize("n", [1, 3])
async def test_a_maximum_beyond_the_context_is_lowered_before_it_is_counted(admission: Admission, n: int) -> None:
    ticket = await admission.admit(key(tokens_per_minute=n * CONTEXT), chat(max_tokens=32_000, n=n), {})
    assert ticket.request.sampling.max_tokens == CONTEXT
    assert ticket.reservation is not None
    assert ticket.reservation.tokens <= n * CONTEXT


async def test_a_default_maximum_makes_no_request_too_large(admission: Admission) -> None:
    limited = key(tokens_per_minute=1000, default_max_tokens=5000)
    assert (await admission.admit(limited, chat(max_tokens=None), {})).request.sampling.max_tokens == 5000


async def test_limits_can_not_be_passed_while_the_store_is_away(admission: Admission, server: FakeServer) -> None:
    server.connected = False
    refusal = await refused(admission, key(requests_per_minute=1), chat())
    assert refusal.problem.kind is ProblemKind.STORE_UNAVAILABLE


async def test_models_of_a_key(admission: Admission) -> None:
    assert (await admission.admit(key(models=("tiny",)), chat(), {})).tenant == "key-1"
    refusal = await refused(admission, key(models=("large",)), chat())
    assert refusal.problem.kind is ProblemKind.FORBIDDEN


@pytest.mark.parametrize(
    ("of_key", "asked", "used"),
    [
        ("default", None, None),
        ("default", "auto", "auto"),
        ("default", "flex", "flex"),
        ("default", "priority", "default"),
        ("priority", None, "priority"),
        ("priority", "auto", "priority"),
        ("priority", "default", "default"),
        ("flex", None, "flex"),
        ("flex", "default", "flex"),
        ("flex", "priority", "flex"),
    ],
)
async def test_a_keys_band_is_what_it_gets_and_the_most_it_gets(
    admission: Admission, of_key: Any, asked: Tier | None, used: Tier | None
) -> None:
    ticket = await admission.admit(key(priority=of_key), chat(asked), {})
    assert ticket.request.tier == used


@pytest.mark.parametrize(
    ("of_key", "wanted", "used"),
    [(None, "", None), (None, "5", 5.0), (None, "500", 60.0), (20.0, "", 20.0), (20.0, "5", 5.0), (20.0, "50", 20.0)],
)
async def test_waits_are_bounded_by_the_key_or_the_setting(
    admission: Admission, of_key: float | None, wanted: str, used: float | None
) -> None:
    ticket = await admission.admit(key(queue_timeout=of_key), chat(), {"x-queue-timeout": wanted})
    assert ticket.queue_timeout == used


@pytest.mark.parametrize("wanted", ["soon", "0", "-1", "nan", "inf", "1s"])
async def test_a_wait_that_is_none_is_refused(admission: Admission, wanted: str) -> None:
    refusal = await refused(admission, None, chat(), **{"x-queue-timeout": wanted})
    assert (refusal.problem.kind, refusal.problem.param) == (ProblemKind.INVALID, "x-queue-timeout")


async def test_each_choice_is_counted_and_the_prompt_once(admission: Admission) -> None:
    ticket = await admission.admit(key(tokens_per_minute=10_000), chat(max_tokens=50, n=4), {})
    assert ticket.reservation is not None
    assert ticket.reservation.tokens == pytest.approx(100 + 4 * 50, abs=10)


async def test_what_can_never_fit_gets_no_retry_time(admission: Admission, redis: ArqRedis) -> None:
    refusal = await refused(admission, key(tokens_per_minute=200), chat(max_tokens=2**31 - 1, n=128))
    assert isinstance(refusal, LimitReached)
    assert (refusal.problem.kind, refusal.problem.retry_after) == (ProblemKind.TOKENS_LIMITED, None)
    assert await redis.zcard(keys.admitted("key-1")) == 0


async def test_a_guess_alone_refuses_nobody_for_good(admission: Admission) -> None:
    ticket = await admission.admit(key(tokens_per_minute=200), chat(max_tokens=None), {})
    assert ticket.reservation is not None
    assert ticket.reservation.tokens == 200


async def test_a_refusal_brings_the_state_of_the_limits(admission: Admission) -> None:
    of = key(requests_per_minute=1)
    await admission.admit(of, chat(), {})
    refusal = await refused(admission, of, chat())
    assert isinstance(refusal, LimitReached)
    assert refusal.problem.kind is ProblemKind.RATE_LIMITED
    assert refusal.problem.retry_after == pytest.approx(60, abs=1)
    assert refusal.counts["requests"].remaining == 0


async def test_no_retry_time_is_given_when_none_is_known(admission: Admission) -> None:
    of = key(concurrency=1)
    await admission.admit(of, chat(), {})
    problem = (await refused(admission, of, chat())).problem
    assert problem.message.endswith(": 1 requests at a time. Please try again when one of them has ended.")
    assert problem.retry_after == 1


async def test_settling_frees_the_place_and_returns_what_was_not_used(
    admission: Admission, parts: Parts, redis: ArqRedis
) -> None:
    of = key(tokens_per_minute=1000, concurrency=1)
    ticket = await admission.admit(of, chat(max_tokens=800), {})
    assert ticket.reservation is not None
    assert (await refused(admission, of, chat())).problem.kind is ProblemKind.RATE_LIMITED
    tally = UsageRecorder()
    tally.started(0, Started("w", 100, "f"))
    parts.chat.settlement.settle(ticket.request, ticket.tenant, ticket.reservation, tally, None, None)
    await parts.job_tasks.finish(PATIENCE)
    assert await redis.zcard(keys.admitted("key-1")) == 0
    again = await admission.admit(of, chat(max_tokens=1), {})
    assert again.counts["tokens"].remaining == pytest.approx(800, abs=20)


async def test_a_key_of_a_team_has_its_limits_and_its_own_weight_in_the_teams(parts: Parts, redis: ArqRedis) -> None:
    limits = {"tokens_per_minute": 50, "queue_timeout": 5.0, "default_max_tokens": 7, "weight": 3}
    made = await create_team(redis, Team(id="-", name="physics", **limits), by="test")  # type: ignore[arg-type]
    await parts.keyring.refresh()
    member, request = key(team=made.id, weight=2), chat(max_tokens=1)
    refusal = await refused(parts.chat.admission, member, request)
    assert "team 'physics' of this API key is limited to 50 tokens per minute" in refusal.problem.message
    await change(redis, Team, made.id, {"tokens_per_minute": 5000}, by="test")
    await parts.keyring.refresh()
    admitted = await parts.chat.admission.admit(member, chat(max_tokens=None), {})
    assert (admitted.account, admitted.weights, admitted.queue_timeout) == (f"key-1@{made.id}", (2, 3), 5)
    assert admitted.request.sampling.max_tokens == 7
    assert admitted.reservation is not None


async def test_requests_for_tokens_count_for_no_rate(parts: Parts, redis: ArqRedis) -> None:
    """Claude Code sends 25 within a second."""
    made = await create_team(redis, Team(id="-", requests_per_minute=1, concurrency=1), by="test")
    await parts.keyring.refresh()
    of = key(team=made.id, requests_per_minute=1, tokens_per_minute=500, concurrency=1)
    for _ in range(25):
        counted = await parts.chat.admission.admit(of, msgspec.structs.replace(chat(), work=COUNT), {})
        assert (counted.reservation, counted.counts) == (None, {})
    assert (await parts.chat.admission.admit(of, chat(), {})).reservation is not None
    assert isinstance(await refused(parts.chat.admission, of, chat()), LimitReached)


async def test_batch_requests_count_only_for_the_budgets_of_a_team(parts: Parts, redis: ArqRedis) -> None:
    made = await create_team(redis, Team(id="-", requests_per_minute=1, tokens_per_day=10), by="test")
    await parts.keyring.refresh()
    admitted = await parts.chat.admission.admit(key(team=made.id), chat("batch"), {})
    refusal = await refused(parts.chat.admission, key(team=made.id), chat("batch"))
    assert (refusal.problem.kind, refusal.problem.retry_after) == (ProblemKind.RATE_LIMITED, 1)
    assert f"Requests in progress of team '{made.id}' of this API key may use up its budget" in refusal.problem.message
    assert admitted.reservation is not None
    await parts.chat.admission.limiter.settle(admitted.reservation, 0)
    assert (await parts.chat.admission.admit(key(team=made.id), chat("batch"), {})).reservation is not None
    today = int(await store_time(redis)) // DAY
    await awaitable(redis.hset(keys.spent(f"team:{made.id}"), str(today), "10"))
    refusal = await refused(parts.chat.admission, key(team=made.id), chat("batch"))
    assert refusal.problem.kind is ProblemKind.BUDGET
    assert f"Team '{made.id}' of this API key has used up its budget of 10 tokens per day" in refusal.problem.message
