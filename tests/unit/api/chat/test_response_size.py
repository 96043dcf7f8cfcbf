"""The size of an answer is bounded by what the request may ask for, and by a share of what running answers keep."""

import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from arq.connections import ArqRedis

from api.build import Parts, build
from api.chat.choices import LOGPROB_BYTES, check_response_size, most_tokens, response_room
from api.dialects.base.interface import Choice, Usage
from api.dialects.openai import OpenAI, OpenAICompletions
from api.dialects.openai.render import ChatResponseEncoder
from api.fairness import SMALL
from api.keys import ApiKey
from api.keys.store import put_record
from api.responses.documents import run_to_end
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import Delta, Event, Finished, Started, TopToken
from shared.protocol.registry import announce
from shared.protocol.request import ChatRequest, Message, ResponseForm, Sampling
from shared.runtime.settings import ApiSettings
from tests.support.answers import ChatExchange, ResponseStream, UsageRecorder, collect, stream
from tests.support.jobs import WORKER

LIMIT = 2**20
ROOM = 2**15
SAID = (Message(role="user", content="Hi"),)
STARTED = Started("w", 1, "fp")
LOGPROBS = Sampling(logprobs=True, top_logprobs=3)
TOP = tuple(TopToken(b"x", -1.0) for _ in range(3))


def problem_of(request: ChatRequest) -> Problem:
    with pytest.raises(RequestRefused) as refusal:
        check_response_size(request)
    return refusal.value.problem


def chat(**fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]} | fields
    return OpenAI().parse(json.dumps(body).encode())


def completion(**fields: Any) -> ChatRequest:
    return OpenAICompletions().parse(json.dumps({"model": "m", "prompt": "Hi"} | fields).encode())


@pytest.mark.parametrize(
    ("request_", "param", "remedy"),
    [
        (chat(n=32, logprobs=True, top_logprobs=20, max_tokens=3000), "logprobs", "Lower the maximum of tokens"),
        (chat(n=32, logprobs=True, top_logprobs=20, max_tokens=3000, stream=True), "logprobs", "Lower the maximum"),
        (
            completion(prompt=["a"] * 64, n=2, logprobs=5, max_tokens=2000),
            "logprobs",
            "the number of log probabilities",
        ),
        (chat(messages=[{"role": "user", "content": "x" * 2**20}], prompt_logprobs=5, n=8), "prompt_logprobs", "'n'"),
        (completion(prompt=["x" * 2**14] * 64, echo=True, logprobs=5, n=2, max_tokens=0), "echo", "a shorter prompt"),
        (chat(n=128, min_tokens=100_000), "max_tokens", "Lower the maximum of tokens or 'n'"),
        (chat(n=128, max_tokens=100_000), "max_tokens", "Lower the maximum of tokens or 'n'"),
    ],
)
def test_a_request_for_too_much_is_refused_with_its_size_and_a_remedy(
    request_: ChatRequest, param: str, remedy: str
) -> None:
    problem = problem_of(request_)
    assert (problem.kind, problem.param) == (ProblemKind.INVALID, param)
    assert f"the server allows at most {32 * LIMIT}" in problem.message
    assert remedy in problem.message


@pytest.mark.parametrize(
    "request_",
    [
        chat(max_tokens=2**31 - 1),
        chat(n=128, max_tokens=32_000),
        chat(logprobs=True, top_logprobs=20, max_tokens=16_000),
        completion(prompt="x" * 2**18, echo=True, logprobs=0, max_tokens=0),
        completion(best_of=2),
    ],
)
async def test_other_requests_stay_as_they_are(request_: ChatRequest, redis: ArqRedis) -> None:
    check_response_size(request_)
    admission = (await replica_of(redis)).chat.admission
    assert (await admission.admit(None, request_, {})).request == request_


async def replica_of(redis: ArqRedis) -> Parts:
    """A replica with a worker of the model."""
    await announce(redis, msgspec.structs.replace(WORKER, model="m", logits=True, context_length=2**31), lease=60)
    replica = build(redis, ApiSettings(), "r")
    await replica.directory.refresh()
    return replica


async def test_without_a_maximum_the_answer_ends_with_its_room(
    redis: ArqRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rate limits reserve what they reserve without the bound."""
    monkeypatch.setattr("api.chat.admission.MAX_RESPONSE_BYTES", LIMIT)
    request = chat(n=2, logprobs=True, top_logprobs=4)
    key = ApiKey(id="key-1", digest="0" * 64, tokens_per_minute=1000)
    await put_record(redis, key, by="test")
    replica = await replica_of(redis)
    ticket = await replica.chat.admission.admit(key, request, {})
    assert ticket.request.sampling.max_tokens == most_tokens(request, LIMIT)
    assert 0.95 < 2 * most_tokens(request, LIMIT) * 5 * LOGPROB_BYTES / LIMIT < 1
    assert ticket.reservation is not None
    assert ticket.reservation.tokens < 1000


def answer(tokens: int, jobs: int = 1) -> ResponseStream:
    response = ResponseStream([f"j{job}" for job in range(jobs)], "m")
    for choice in response.choices:
        events: Sequence[Event] = (
            STARTED,
            *(Delta(at, (1,), "x", (-1.0,), (b"x",), (TOP,)) for at in range(tokens)),
            Finished(tokens, "length"),
        )
        for event in events:
            choice.push(1, event)
    return response


async def test_running_answers_share_the_room_for_log_probabilities() -> None:
    room, request = response_room(ROOM), ChatRequest(model="m", messages=SAID, sampling=LOGPROBS)
    per_token = 4 * LOGPROB_BYTES
    most = 2 * ROOM // per_token
    first, second, third = (UsageRecorder(share=room.holding(tenant)) for tenant in "aab")
    await collect(answer(most), request, first)
    with pytest.raises(RequestRefused) as refusal:
        await collect(answer(1), request, second)
    assert (refusal.value.problem.kind, refusal.value.problem.retry_after) == (ProblemKind.QUEUE_FULL, 1.0)
    assert second.outcome == ProblemKind.QUEUE_FULL
    await collect(answer(most), request, third)
    for recorder in (first, second, third):
        recorder.release()
    await collect(answer(most), request, UsageRecorder(share=room.holding("a")))


async def test_a_stream_that_is_stored_ends_with_an_error_when_there_is_no_room() -> None:
    request = ChatRequest(model="m", messages=SAID, sampling=LOGPROBS, store=True, response=ResponseForm(stream=True))
    encoder = ChatResponseEncoder(request, response_id="a", created=1, fingerprint="")

    async def store(_: list[Choice]) -> None:
        raise AssertionError("it is not complete")

    recorder = UsageRecorder(share=response_room(ROOM).holding("a"))
    pieces = [piece async for piece in stream(answer(1_000), request, encoder, recorder, store)]
    assert b"too many log probabilities" in pieces[-1]
    # What is not kept needs no room.
    pieces = [piece async for piece in stream(answer(1_000), request, encoder, recorder)]
    assert pieces[-1].endswith(encoder.done)


async def test_a_background_response_fails_when_there_is_no_room() -> None:
    request = ChatRequest(
        model="m", messages=SAID, sampling=LOGPROBS, response=ResponseForm(background=True, echoed="{}")
    )
    recorder = UsageRecorder(share=response_room(ROOM).holding("a"))
    document = json.loads(await run_to_end(answer(1_000), request, recorder, response_id="a", created=1))
    assert (document["status"], document["error"]["code"]) == ("failed", "rate_limit_exceeded")


async def test_a_large_answer_is_encoded_outside_of_the_event_loop(redis: ArqRedis) -> None:
    replica = build(redis, ApiSettings(), "r")
    threads: list[int] = []

    class Encoder(ChatResponseEncoder):
        def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
            threads.append(threading.get_ident())
            return super().completion(choices, usage)

    for tokens in (1, SMALL // LOGPROB_BYTES):
        request = ChatRequest(model="m", messages=SAID, sampling=LOGPROBS)
        exchange = ChatExchange(replica.chat, request, key=None, headers={}, messages=b"", started_at=time.monotonic())
        exchange._stream = answer(tokens)
        encoder = Encoder(request, response_id="a", created=1, fingerprint="")
        document = json.loads(await replica.batches.responder.whole(exchange, encoder))
        assert len(document["choices"][0]["logprobs"]["content"]) == tokens
        assert (
            document["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            == [{"token": "x", "logprob": -1.0, "bytes": [120]}] * 3
        )
    assert [thread == threading.get_ident() for thread in threads] == [True, False]
