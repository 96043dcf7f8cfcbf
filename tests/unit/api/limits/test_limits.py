"""Limits of keys, counted in a simulated Redis, and their response headers."""

import time
from typing import Any

import pytest
from arq.connections import ArqRedis

from api.dialects.anthropic import rate_headers
from api.keys import ApiKey, Team
from api.limits import Counts, Limiter, LimitName, Refusal, Reservation
from api.limits.headers import duration, openai_rate_headers
from shared.protocol.registry import ReplicaInfo, announce
from shared.redis import keys
from tests.support.redis_types import awaitable
from tests.support.wall_clock import WallClock

pytestmark = pytest.mark.usefixtures("wall_clock")


@pytest.fixture
def limiter(redis: ArqRedis) -> Limiter:
    return limiter_of(redis)


def limiter_of(redis: ArqRedis, replica: str = "api-1", *, lease: float = 60, longest: float = 600) -> Limiter:
    return Limiter(redis, replica=replica, lease=lease, longest=longest)


def key(**limits: Any) -> ApiKey:
    return ApiKey(id="key-1", digest="0" * 64, **limits)


async def reserve(
    limiter: Limiter, of: ApiKey, tokens: int = 1
) -> tuple[Reservation, Refusal | None, dict[LimitName, Counts]]:
    reservation = Reservation(of, limiter.new_name(), tokens)
    refusal, counts = await limiter.reserve(reservation)
    return reservation, refusal, counts


async def test_requests_are_counted_and_refused_with_a_time(limiter: Limiter) -> None:
    three = key(requests_per_minute=3)
    for left in (2, 1, 0):
        _, refusal, counts = await reserve(limiter, three)
        assert refusal is None
        assert counts["requests"].remaining == left
    _, refusal, counts = await reserve(limiter, three)
    assert refusal is not None
    assert refusal.limit == "requests"
    assert refusal.wait == pytest.approx(20)
    assert counts["requests"].remaining == 0
    assert counts["requests"].reset == pytest.approx(60)


async def test_a_refused_request_takes_nothing(limiter: Limiter) -> None:
    both = key(requests_per_minute=2, tokens_per_minute=100)
    _, refusal, counts = await reserve(limiter, both, 60)
    assert refusal is None
    _, refusal, counts = await reserve(limiter, both, 60)
    assert refusal is not None
    assert refusal.limit == "tokens"
    assert (counts["requests"].remaining, counts["tokens"].remaining) == (1, 40)


async def test_tokens_come_back_with_time(limiter: Limiter, wall_clock: WallClock) -> None:
    slow = key(tokens_per_minute=6000)
    await reserve(limiter, slow, 6000)
    _, refusal, _ = await reserve(limiter, slow, 10)
    assert refusal is not None
    assert refusal.wait is not None
    wall_clock.advance(refusal.wait - 0.002)
    assert (await reserve(limiter, slow, 10))[1] is not None
    wall_clock.advance(0.002)
    assert (await reserve(limiter, slow, 10))[1] is None


async def test_the_guess_of_tokens_is_put_right_at_the_end(limiter: Limiter) -> None:
    of = key(tokens_per_minute=1000)
    reservation, _, _ = await reserve(limiter, of, 900)
    await limiter.settle(reservation, 100)
    reservation, refusal, counts = await reserve(limiter, of, 0)
    assert refusal is None
    assert counts["tokens"].remaining == 900
    await limiter.settle(reservation, 2500)
    _, refusal, counts = await reserve(limiter, of, 1)
    assert refusal is not None
    assert refusal.wait == pytest.approx(96.06)
    assert counts["tokens"].remaining == 0


async def test_places_are_freed_at_the_end_and_when_a_replica_died(redis: ArqRedis, wall_clock: WallClock) -> None:
    limiter = limiter_of(redis, longest=600)
    two = key(concurrency=2)
    first, refusal, _ = await reserve(limiter, two)
    await reserve(limiter, two)
    assert refusal is None
    assert (await reserve(limiter, two))[1] == Refusal("concurrency", None)
    await limiter.settle(first, 0)
    assert (await reserve(limiter, two))[1] is None
    assert (await reserve(limiter, two))[1] == Refusal("concurrency", None)
    wall_clock.advance(599)
    assert (await reserve(limiter, two))[1] == Refusal("concurrency", None)
    wall_clock.advance(1)
    assert (await reserve(limiter, two))[1] is None


async def test_replicas_share_the_counts_and_keys_do_not(redis: ArqRedis, limiter: Limiter) -> None:
    one = key(requests_per_minute=1)
    assert (await reserve(limiter, one))[1] is None
    assert (await reserve(limiter_of(redis, "api-2"), one))[1] is not None
    other = ApiKey(id="key-2", digest="1" * 64, requests_per_minute=1)
    assert (await reserve(limiter, other))[1] is None


async def test_counts_expire(redis: ArqRedis, limiter: Limiter) -> None:
    await reserve(limiter, key(requests_per_minute=1, concurrency=1))
    assert 0 < await redis.ttl(keys.buckets("key-1")) <= 130
    assert 0 < await redis.ttl(keys.admitted("key-1")) <= 600


async def test_places_of_a_replica_that_is_gone_are_freed_after_a_lease(redis: ArqRedis, wall_clock: WallClock) -> None:
    two = key(concurrency=2)
    gone, here = limiter_of(redis, "gone"), limiter_of(redis, "here", lease=60)
    await reserve(gone, two)
    await reserve(gone, two)
    _, refusal, _ = await reserve(here, two)
    assert refusal == Refusal("concurrency", 60)
    wall_clock.advance(59)
    assert (await reserve(here, two))[1] == Refusal("concurrency", 1)
    wall_clock.advance(1)
    _, refusal, _ = await reserve(here, two)
    assert refusal is None
    _, refusal, _ = await reserve(here, two)
    assert refusal is None, "both places were free"
    assert (await reserve(here, two))[1] == Refusal("concurrency", None), "its own places stay"
    assert await awaitable(redis.hkeys(keys.buckets("key-1"))) == []


async def test_a_replica_that_is_missed_only_for_a_moment_keeps_its_places(
    redis: ArqRedis, wall_clock: WallClock
) -> None:
    one = key(concurrency=1)
    other, here = limiter_of(redis, "other"), limiter_of(redis, "here", lease=60)
    reservation, _, _ = await reserve(other, one)
    # The store was away, and the other replica has not announced itself since.
    _, refusal, _ = await reserve(here, one)
    assert refusal == Refusal("concurrency", 60)
    wall_clock.advance(60)
    await announce(redis, ReplicaInfo(id="other", host="h", pid=1, address="", started=0.0), lease=2)
    assert (await reserve(here, one))[1] == Refusal("concurrency", None)
    wall_clock.advance(2)
    assert (await reserve(here, one))[1] is not None, "it is missed anew"
    await other.settle(reservation, 0)
    assert (await reserve(here, one))[1] is None


async def test_what_is_noted_of_absent_replicas_expires(redis: ArqRedis) -> None:
    one = key(concurrency=1)
    await reserve(limiter_of(redis, "gone"), one)
    assert (await reserve(limiter_of(redis, "here"), one))[1] is not None
    assert 0 < await redis.ttl(keys.buckets("key-1")) <= 61


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.017, "17ms"), (1, "1s"), (7.66, "7.66s"), (60, "1m0s"), (360, "6m0s"), (3605, "1h0m5s")],
)
def test_durations_are_written_as_the_service_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_headers_are_sent_for_the_limits_that_there_are() -> None:
    assert openai_rate_headers({"tokens": Counts(1000, 900, 6)}) == {
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "900",
        "x-ratelimit-reset-tokens": "6s",
    }


def test_anthropics_headers_have_times_of_reset() -> None:
    assert rate_headers({"requests": Counts(60, 59, 0.4)}, 1_790_000_000.5) == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "59",
        "anthropic-ratelimit-requests-reset": "2026-09-21T14:13:21Z",
    }


async def test_limits_hold_as_before_after_the_stores_clock_was_set_back(
    limiter: Limiter, wall_clock: WallClock
) -> None:
    one = key(requests_per_minute=60, tokens_per_minute=100)
    assert (await reserve(limiter, one, 100))[1] is None
    wall_clock.advance(-3600)
    for _ in range(2):
        _, refusal, counts = await reserve(limiter, one, 50)
        assert refusal == Refusal("tokens", 30)
        assert counts["requests"].remaining == 59
    wall_clock.advance(30)
    assert (await reserve(limiter, one, 50))[1] is None, "buckets go on to fill by the store's clock"


@pytest.mark.parametrize("garbage", ["x", "", "nan", "inf", "-1", "1e300"])
async def test_garbage_among_the_counts_refuses_nobody(redis: ArqRedis, garbage: str) -> None:
    key = ApiKey(id="k", digest="0" * 64, requests_per_minute=10, tokens_per_minute=100, concurrency=2)
    await awaitable(redis.hset(keys.buckets("k"), mapping={"requests": garbage, "tokens": garbage, "at": garbage}))
    limiter = Limiter(redis, replica="api-1", lease=2, longest=600)
    reservation = Reservation(key, limiter.new_name(), 10)
    refusal, _ = await limiter.reserve(reservation)
    assert refusal is None
    await limiter.settle(reservation, 20)


async def test_debt_is_capped_and_never_forgiven(limiter: Limiter, wall_clock: WallClock) -> None:
    of = key(tokens_per_minute=10)
    reservation, _, _ = await reserve(limiter, of, 10)
    await limiter.settle(reservation, 1_000_000)
    _, refusal, _ = await reserve(limiter, of, 1)
    assert refusal is not None
    assert refusal.wait == pytest.approx(DAY - 54, abs=1)
    wall_clock.advance(DAY / 2)
    _, refusal, _ = await reserve(limiter, of, 1)
    assert refusal is not None
    wall_clock.advance(DAY / 2)
    assert (await reserve(limiter, of, 1))[1] is None


async def test_debt_of_an_earlier_version_is_capped_when_it_is_read(redis: ArqRedis, limiter: Limiter) -> None:
    await awaitable(redis.hset(keys.buckets("key-1"), "tokens", str((time.time() + 400 * DAY) * 1000)))
    _, refusal, _ = await reserve(limiter, key(tokens_per_minute=10), 1)
    assert refusal is not None
    assert refusal.wait == pytest.approx(DAY - 54, abs=1)


DAY = 86_400
LEAP_DAY = 19_782 * DAY
"""2024-02-29 00:00 UTC."""


@pytest.mark.parametrize(
    ("after", "of_day", "of_month"),
    [(0, DAY, DAY), (DAY / 2, DAY / 2, DAY / 2), (DAY, DAY, 31 * DAY), (-28 * DAY, DAY, 29 * DAY)],
    ids=["the last day of a month", "at noon", "the first day of a month", "the first of February"],
)
async def test_budgets_are_renewed_with_the_day_and_the_month(
    limiter: Limiter, redis: ArqRedis, wall_clock: WallClock, after: float, of_day: float, of_month: float
) -> None:
    wall_clock.advance(LEAP_DAY + after - time.time())
    today = int(time.time()) // DAY
    await awaitable(redis.hset(keys.spent("key-1"), mapping={str(today): 60, str(today - 32): 1000}))
    for name, reset in (("tokens_per_day", of_day), ("tokens_per_month", of_month)):
        _, refusal, _ = await reserve(limiter, key(**{name: 60}))
        assert refusal == Refusal(name, reset)  # type: ignore[arg-type]
        reservation, refusal, _ = await reserve(limiter, key(**{name: 61}))
        assert refusal is None
        await limiter.settle(reservation, 0)


async def test_a_month_is_the_sum_of_its_days(limiter: Limiter, redis: ArqRedis, wall_clock: WallClock) -> None:
    wall_clock.advance(LEAP_DAY - time.time())
    days = {str(19_782 - day): 1 for day in range(31)}
    await awaitable(redis.hset(keys.spent("key-1"), mapping=days))
    assert (await reserve(limiter, key(tokens_per_month=30)))[1] is None
    assert (await reserve(limiter, key(tokens_per_month=29)))[1] is not None


@pytest.mark.parametrize("budget", ["tokens_per_day", "tokens_per_month"])
async def test_requests_in_progress_count_towards_a_budget(limiter: Limiter, budget: LimitName) -> None:
    of = key(**{budget: 1000})
    reservations = [await reserve(limiter, of, 400) for _ in range(4)]
    assert [refusal for _, refusal, _ in reservations] == [None, None, None, Refusal(budget, None)]
    await limiter.settle(reservations[0][0], 10)
    assert (await reserve(limiter, of, 5000))[1] is None, "a budget is exceeded by one request at most"
    assert (await reserve(limiter, of, 1))[1] == Refusal(budget, None)


async def test_what_a_lost_replica_reserved_of_a_budget_is_freed(redis: ArqRedis, wall_clock: WallClock) -> None:
    of = key(tokens_per_day=1000)
    gone, here = limiter_of(redis, "gone"), limiter_of(redis, "here", lease=60)
    await reserve(gone, of, 1000)
    assert (await reserve(here, of))[1] == Refusal("tokens_per_day", None)
    wall_clock.advance(60)
    assert (await reserve(here, of))[1] is None
    assert int(await awaitable(redis.hget(keys.buckets("key-1"), "reserved")) or 0) == 1


async def test_what_was_reserved_of_a_budget_ends_with_its_place(redis: ArqRedis, wall_clock: WallClock) -> None:
    of, limiter = key(tokens_per_day=10), limiter_of(redis, longest=600)
    await reserve(limiter, of, 10)
    wall_clock.advance(300)
    assert (await reserve(limiter, of))[1] is not None
    wall_clock.advance(301)
    assert (await reserve(limiter, of))[1] is None


async def test_most_of_a_budget_is_logged_once(
    limiter: Limiter, redis: ArqRedis, caplog: pytest.LogCaptureFixture
) -> None:
    today = int(time.time()) // DAY
    for spent in (79, 80, 81):
        await awaitable(redis.hset(keys.spent("key-1"), str(today), str(spent)))
        await reserve(limiter, key(tokens_per_day=100))
    assert [record.getMessage() for record in caplog.records] == ["key key-1 has used 80 of its 100 tokens per day"]


def team(**limits: Any) -> Team:
    return Team(id="physics", **limits)


async def test_a_request_counts_for_the_key_and_for_its_team_or_for_neither(limiter: Limiter) -> None:
    one = key(requests_per_minute=5)
    another = ApiKey(id="key-2", digest="1" * 64)
    for of, left in ((one, 1), (another, 0)):
        refusal, counts = await limiter.reserve(Reservation(of, limiter.new_name(), 1, team(requests_per_minute=2)))
        assert refusal is None
        assert counts["requests"].remaining == left
    refusal, counts = await limiter.reserve(Reservation(one, limiter.new_name(), 1, team(requests_per_minute=2)))
    assert refusal == Refusal("requests", pytest.approx(30), by_team=True)  # type: ignore[arg-type]
    _, refusal, counts = await reserve(limiter, one)
    assert refusal is None
    assert counts["requests"].remaining == 3, "the request that the team's limit refused counts for the key"


async def test_a_settled_request_frees_the_places_of_the_key_and_of_its_team(limiter: Limiter) -> None:
    of, both = key(tokens_per_minute=1000), team(tokens_per_minute=600, concurrency=1)
    first = Reservation(of, limiter.new_name(), 500, both)
    assert (await limiter.reserve(first))[0] is None
    second = Reservation(of, limiter.new_name(), 500, both)
    assert (await limiter.reserve(second))[0] == Refusal("concurrency", None, by_team=True)
    await limiter.settle(first, 0)
    refusal, counts = await limiter.reserve(second)
    assert refusal is None
    assert counts["tokens"].remaining == 100


async def test_a_teams_budget_counts_what_its_keys_have_used(
    limiter: Limiter, redis: ArqRedis, caplog: pytest.LogCaptureFixture
) -> None:
    today = int(time.time()) // 86400
    await awaitable(redis.hset(keys.spent("team:physics"), str(today), "100"))
    reservation = Reservation(key(tokens_per_day=1000), limiter.new_name(), 1, team(tokens_per_day=100))
    refusal, _ = await limiter.reserve(reservation)
    assert refusal is not None
    assert (refusal.limit, refusal.by_team) == ("tokens_per_day", True)
    assert "team physics has used 100 of its 100 tokens per day" in caplog.text
