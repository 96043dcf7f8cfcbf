"""Answers that stay whole: repeats, gaps, stale attempts, slow consumers, lost messages."""

import asyncio
import json

import pytest
from arq.connections import ArqRedis

from api.chat.relay import Relay
from api.dialects.openai.render import ChatResponseEncoder
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import (
    Delta,
    Event,
    Failed,
    Finished,
    Rejected,
    Started,
    TopToken,
    encode_event,
    encode_frame,
    entry_head,
)
from shared.protocol.queue import Emitter, JobQueue, Lease
from shared.protocol.request import ChatRequest, Sampling
from shared.redis import keys
from tests.support.answers import ResponseStream, sent
from tests.support.emitting import emit
from tests.support.jobs import job
from tests.support.redis_types import awaitable

STARTED = Started("w1", 3, "fp")
END = Finished(3, "stop")


def delta(position: int, text: str, tokens: int = 1) -> Delta:
    return Delta(position, tuple(range(tokens)), text)


def feed(answer: ResponseStream, *events: tuple[int, Event]) -> list[bool]:
    return [answer.choices[0].push(attempt, event) for attempt, event in events]


def frame_of(*entries: tuple[str, int, Event]) -> bytes:
    return encode_frame(
        [part for job, attempt, event in entries for part in (entry_head(job, attempt), encode_event(event))]
    )


async def text_of(answer: ResponseStream) -> str:
    text = ""
    async for batch in answer.batches():
        text += "".join(event.text for _, event in batch if isinstance(event, Delta))
    return text


async def test_repeats_and_stale_attempts_are_dropped() -> None:
    answer = ResponseStream(["a"], "tiny")
    complete = feed(
        answer,
        (1, STARTED), (1, delta(0, "a")), (1, delta(0, "a")), (2, STARTED), (1, delta(1, "x")), (2, delta(1, "b")),
        (1, Finished(9, "stop")), (2, delta(2, "c")), (2, END), (2, END),
    )  # fmt: skip
    assert all(complete)
    assert await text_of(answer) == "abc"


async def test_a_gap_is_noticed_and_filled_from_the_journal() -> None:
    answer = ResponseStream(["a"], "tiny")
    assert feed(answer, (1, STARTED), (1, delta(1, "b")), (1, delta(2, "c"))) == [True, False, True]
    answer.choices[0].fill([STARTED, delta(0, "a"), delta(1, "b")])
    feed(answer, (1, END))
    assert await text_of(answer) == "abc"


async def test_a_missed_beginning_is_noticed() -> None:
    answer = ResponseStream(["a"], "tiny")
    assert feed(answer, (1, delta(0, "a"))) == [False]
    answer.choices[0].fill([STARTED, delta(0, "a"), delta(1, "b"), delta(2, "c"), END])
    assert await text_of(answer) == "abc"


def words(text: str) -> list[Delta]:
    """Deltas of one word each. Equal words are equal tokens."""
    return [
        Delta(position, (int.from_bytes(word.encode()) % 2**31,), word + " ")
        for position, word in enumerate(text.split())
    ]


@pytest.mark.parametrize("attempt", [1, 2])
async def test_an_attempt_that_generates_other_tokens_again_ends_the_answer(attempt: int) -> None:
    """A failover lost the store's last writes: the next attempt starts before the client's position. The lost claim may
    have had the same number."""
    answer = ResponseStream(["a"], "tiny")
    feed(answer, (1, STARTED), *((1, event) for event in words("The cat sat")))
    feed(answer, (attempt, STARTED), *((attempt, event) for event in words("A dog ran away fast")))
    feed(answer, (attempt, Finished(5, "stop")))
    events = [event for _, event in [one async for batch in answer.batches() for one in batch]]
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "The cat sat "
    assert isinstance(events[-1], Failed)
    assert events[-1].problem.kind == ProblemKind.LOST
    assert answer.has_unfinished_jobs, "its job is not cancelled"


async def test_an_attempt_that_generates_the_same_tokens_again_continues_the_answer() -> None:
    answer = ResponseStream(["a"], "tiny")
    feed(answer, (1, STARTED), *((1, event) for event in words("The cat sat")))
    feed(answer, (1, STARTED), *((1, event) for event in words("The cat sat down")), (1, Finished(4, "stop")))
    assert await text_of(answer) == "The cat sat down "


async def test_an_attempt_that_ends_before_the_tokens_of_the_client_ends_the_answer() -> None:
    answer = ResponseStream(["a"], "tiny")
    feed(answer, (1, STARTED), *((1, event) for event in words("The cat sat")))
    feed(answer, (1, STARTED), *((1, event) for event in words("The cat")), (1, Finished(2, "stop")))
    assert answer.problem is not None
    assert answer.problem.kind == ProblemKind.LOST


async def test_a_delta_that_repeats_only_a_part_ends_the_answer() -> None:
    """Its text cannot be divided."""
    answer = ResponseStream(["a"], "tiny")
    feed(answer, (1, STARTED), (1, Delta(0, (7, 8), "ab")), (1, Delta(1, (8, 9), "bc")))
    assert answer.problem is not None
    assert answer.problem.kind == ProblemKind.LOST


async def test_a_journal_with_other_tokens_ends_the_answer() -> None:
    """The attempts in a journal of before the failover have lower numbers than the client has seen."""
    answer = ResponseStream(["a"], "tiny")
    feed(answer, (2, STARTED), *((2, event) for event in words("The cat sat")))
    answer.choices[0].fill([STARTED, *words("A dog ran away")])
    assert answer.problem is not None
    assert answer.problem.kind == ProblemKind.LOST
    assert await text_of(answer) == "The cat sat "


async def test_frames_after_a_reconnection_wait_for_the_journal(redis: ArqRedis) -> None:
    """After a failover, the relay may have missed the tokens in which another attempt differs."""
    relay = Relay(redis, "api-1")
    answer = ResponseStream(["a"], "tiny")
    relay.open(answer)
    await redis.set(keys.payload("a"), b"payload")
    relay.route(frame_of(("a", 1, STARTED), *(("a", 1, event) for event in words("The cat sat"))))
    others: list[Event] = [*words("A dog ran away fast")]
    for event in [STARTED, *others]:
        await awaitable(redis.rpush(keys.journal("a"), encode_event(event)))
    relay.on_subscribed()
    relay.route(frame_of(*(("a", 1, event) for event in others[3:])))
    await asyncio.gather(*relay._recoveries)
    assert await text_of(answer) == "The cat sat "
    assert answer.problem is not None


async def test_a_slow_consumer_gets_merged_deltas() -> None:
    answer = ResponseStream(["a", "b"], "tiny")
    for track in answer.choices:
        track.push(1, STARTED)
    for position in range(1000):
        for track in answer.choices:
            track.push(1, delta(position, track.job))
    for track in answer.choices:
        track.push(1, Finished(1000, "stop"))
    batches = [batch async for batch in answer.batches()]
    events = [(choice, event) for batch in batches for choice, event in batch]
    assert len(events) < 200
    for choice, name in enumerate("ab"):
        own = [event for of, event in events if of == choice]
        assert isinstance(own[0], Started)
        assert isinstance(own[-1], Finished)
        assert "".join(event.text for event in own if isinstance(event, Delta)) == name * 1000
        assert sum(len(event.tokens) for event in own if isinstance(event, Delta)) == 1000


@pytest.mark.parametrize("text", ["a", " " * 40, "\x01\u20ac\U0001f600"])
@pytest.mark.parametrize("alternatives", [0, 20])
async def test_merged_lines_have_at_most_16_kb(text: str, alternatives: int) -> None:
    request = ChatRequest(model="sim", messages=(), sampling=Sampling(logprobs=True, top_logprobs=alternatives))
    answer = ResponseStream(["a"], "sim")
    answer.choices[0].push(1, STARTED)
    piece = text.encode()
    top = (tuple(TopToken(piece, -1.2345678901234567) for _ in range(alternatives)),) if alternatives else ()
    for position in range(1000):
        answer.choices[0].push(1, Delta(position, (position,), text, (-1.2345678901234567,), (piece,), top))
    answer.choices[0].push(1, Finished(1000, "stop"))
    encoder = ChatResponseEncoder(request, response_id="a" * 32, created=1, fingerprint="fp")
    lines = (await sent(answer, request, encoder)).split(b"\n\n")
    assert max(map(len, lines)) <= 16 * 1024
    assert len(lines) < 500 or alternatives
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: {")]
    assert sum(len((chunk["choices"][0]["logprobs"] or {"content": []})["content"]) for chunk in chunks) == 1000


async def test_the_verdict_is_raised_when_it_is_a_refusal() -> None:
    answer = ResponseStream(["a"], "tiny")
    feed(answer, (1, Rejected(Problem(kind=ProblemKind.INVALID, message="no"))))
    with pytest.raises(RequestRefused, match="no"):
        await answer.started()


async def test_failing_an_answer_ends_every_choice_once() -> None:
    answer = ResponseStream(["a", "b"], "tiny")
    feed(answer, (1, STARTED), (1, Finished(0, "stop")))
    answer.fail(Problem(kind=ProblemKind.TIMEOUT, message="late"))
    answer.choices[1].push(1, STARTED)
    assert answer.finished
    events = [event async for batch in answer.batches() for _, event in batch]
    assert [type(event) for event in events] == [Started, Finished, Failed]


async def test_frames_are_routed_and_lost_ones_recovered(redis: ArqRedis) -> None:
    relay = Relay(redis, "api-1")
    answer = ResponseStream(["a"], "tiny")
    relay.open(answer)
    await redis.set(keys.payload("a"), b"payload")
    for event in (STARTED, delta(0, "a"), delta(1, "b")):
        await awaitable(redis.rpush(keys.journal("a"), encode_event(event)))
    # The first frame was lost on its way.
    relay.route(frame_of(("a", 1, delta(1, "b")), ("unknown", 1, END)))
    await asyncio.gather(*relay._recoveries)
    relay.route(frame_of(("a", 1, delta(2, "c")), ("a", 1, END)))
    assert await text_of(answer) == "abc"


async def test_steps_that_are_in_no_journal_yet_are_recovered(redis: ArqRedis, queue: JobQueue) -> None:
    relay = Relay(redis, "api-1")
    answer = ResponseStream(["a"], "tiny")
    relay.open(answer)
    await queue.enqueue([job("a")], limit=1)
    await queue.claim("w1", used=0, slots=1)
    emitter, lease = Emitter("tiny", "w1"), Lease("a", 1, "api-1")
    for event in (STARTED, delta(0, "a"), delta(1, "b")):
        await emit(redis, emitter, {lease: [encode_event(event)]})
    relay.on_subscribed()
    await asyncio.gather(*relay._recoveries)
    relay.route(frame_of(("a", 1, delta(2, "c")), ("a", 1, END)))
    assert await text_of(answer) == "abc"


async def test_a_job_that_the_store_has_forgotten_ends_with_an_error(redis: ArqRedis) -> None:
    relay = Relay(redis, "api-1")
    answer = ResponseStream(["a"], "tiny")
    relay.open(answer)
    relay.route(frame_of(("a", 1, delta(1, "b"))))
    await asyncio.gather(*relay._recoveries)
    with pytest.raises(RequestRefused, match="lost"):
        await answer.started()


async def test_a_frame_that_is_none_is_ignored(redis: ArqRedis) -> None:
    relay = Relay(redis, "api-1")
    relay.route(b"nonsense")
    assert relay.frames == 1


async def test_a_job_that_is_on_its_way_to_the_queue_is_not_taken_for_lost(redis: ArqRedis) -> None:
    relay = Relay(redis, "api-1")
    answer = ResponseStream(["a"], "tiny", queued=False)
    relay.open(answer)
    relay.route(frame_of(("a", 1, delta(1, "b"))))
    await asyncio.gather(*relay._recoveries)
    answer.choices[0].fill([STARTED, delta(0, "a"), delta(1, "b"), Finished(2, "stop")])
    assert await text_of(answer) == "ab"


GARBAGE = [b"", b"?", b"\xff", b"\x91" * 10_000, encode_event(STARTED)[:-1], encode_event(Finished(9, "stop"))]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda garbage: repr(garbage)[:16])
async def test_a_damaged_journal_ends_its_own_answer_only(redis: ArqRedis, garbage: bytes) -> None:
    relay = Relay(redis, "api-1")
    damaged, whole = ResponseStream(["a"], "tiny"), ResponseStream(["b"], "tiny")
    for answer in (damaged, whole):
        relay.open(answer)
        await redis.set(keys.payload(answer.jobs[0]), b"payload")
        relay.route(frame_of((answer.jobs[0], 1, STARTED), (answer.jobs[0], 1, delta(0, "x"))))
    await awaitable(redis.rpush(keys.journal("a"), encode_event(STARTED), encode_event(delta(0, "x")), garbage))
    await awaitable(redis.rpush(keys.journal("b"), encode_event(STARTED), encode_event(delta(0, "x"))))
    for name in ("a", "b"):
        relay.route(frame_of((name, 1, delta(2, "z"))))  # the event before it is missing
    await asyncio.gather(*relay._recoveries)
    assert damaged.finished
    assert damaged.has_unfinished_jobs, "its job is not cancelled"
    events = [event async for batch in damaged.batches() for _, event in batch]
    assert isinstance(events[-1], Failed)
    assert "damaged" in events[-1].problem.message
    relay.route(frame_of(("b", 1, delta(1, "y")), ("b", 1, Finished(2, "stop"))))
    assert await text_of(whole) == "xy"


@pytest.mark.parametrize(
    "garbage", [b"", b"?", b"\x91" * 100_000, b"\x91\x93\xa1\xff\x01\x92\x04\x00"], ids=["", "?", "deep", "no text"]
)
async def test_a_frame_that_can_not_be_read_is_skipped(redis: ArqRedis, garbage: bytes) -> None:
    relay = Relay(redis, "api-1")
    answer = ResponseStream(["a"], "tiny")
    relay.open(answer)
    relay.route(garbage)
    relay.route(frame_of(("a", 1, STARTED), ("a", 1, Finished(0, "stop"))))
    assert answer.finished


async def test_a_long_merged_delta_is_not_copied_for_each_that_follows() -> None:
    answer = ResponseStream(["a"], "tiny")
    feed(answer, (1, STARTED), *((1, delta(at, "x")) for at in range(4000)), (1, Finished(4000, "stop")))
    events = [event async for batch in answer.batches() for _, event in batch]
    sizes = [len(event.tokens) for event in events if isinstance(event, Delta)]
    assert sum(sizes) == 4000
    assert len(sizes) < 100
    assert max(sizes) < 1000
