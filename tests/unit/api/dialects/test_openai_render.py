"""Answers in OpenAI's form: the official SDK's types read every body and chunk, and know all that is in it."""

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import APIError, RateLimitError
from openai import OpenAI as Client
from openai._streaming import ServerSentEvent, SSEDecoder
from openai.pagination import SyncPage
from openai.types import Model
from openai.types.chat import ChatCompletionChunk

from api.dialects.base.interface import Usage
from api.dialects.base.models import render_model, render_models
from api.dialects.openai import OpenAI
from api.dialects.openai.render import OBFUSCATED_BLOCK, ChatResponseEncoder
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.formats import ModelFormats
from shared.protocol.registry import IMAGE, TEXT, ModelInfo
from tests.support.jobs import request_of
from tests.support.sdk_types import checked, complete

USAGE = Usage(prompt_tokens=5, completion_tokens=7, cached_tokens=3)


def rendering(**fields: Any) -> ChatResponseEncoder:
    request = request_of("a/model", **fields)
    return OpenAI().render(request, response_id="0f", created=1_700_000_000, fingerprint="fp_1")


def events(stream: bytes) -> list[ServerSentEvent]:
    return list(SSEDecoder().iter_bytes(iter([stream])))


def chunk(stream: bytes) -> ChatCompletionChunk:
    """The one chunk in ``stream``."""
    assert stream.startswith(b"data: ")
    assert stream.endswith(b"\n\n")
    (event,) = events(stream)
    return checked(ChatCompletionChunk, event.data)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_survives_a_chunk(text: str) -> None:
    answer = rendering(stream=True)
    answer.opening(0)
    stream = answer.content(0, text)
    assert stream.count(b"\n") == 2
    assert b"\r" not in stream
    assert chunk(stream).choices[0].delta.content == text


def test_obfuscated_chunks_do_not_tell_their_texts_sizes() -> None:
    answer = rendering(stream=True, obfuscate=True)
    answer.opening(0)
    texts = ["", "a", "a longer word", "four words in it", '"' * 100]
    pieces = [answer.content(0, text) for text in texts]
    assert [chunk(piece).choices[0].delta.content for piece in pieces] == texts
    assert {len(piece) % OBFUSCATED_BLOCK for piece in pieces} == {0}
    assert len({len(piece) for piece in pieces[:3]}) == 1
    assert "obfuscation" in chunk(pieces[0]).model_fields_set


def client_for(status: int, content_type: str, headers: Mapping[str, str], reply: bytes) -> Client:
    """The official client, to which every request is answered like this."""
    answer = httpx2.Response(status, headers={"content-type": content_type, **headers}, content=reply)
    transport = httpx2.MockTransport(lambda _: answer)
    return Client(api_key="k", base_url="http://test", max_retries=0, http_client=httpx2.Client(transport=transport))


def test_the_official_client_reads_a_stream_and_raises_its_failure() -> None:
    answer = rendering(stream=True)
    problem = Problem(kind=ProblemKind.LOST, message="The answer was lost.")
    reply = answer.opening(0) + answer.content(0, "Hel") + answer.content(0, "lo") + answer.failure(problem)
    client = client_for(200, "text/event-stream", {}, reply)
    chunks = client.chat.completions.create(model="m", messages=[], stream=True)
    assert [next(chunks).choices[0].delta.content for _ in range(3)] == ["", "Hel", "lo"]
    with pytest.raises(APIError, match="The answer was lost"):
        next(chunks)


def test_the_official_client_raises_a_refusal_with_all_its_parts() -> None:
    reply = OpenAI().error(Problem(kind=ProblemKind.QUEUE_FULL, message="full", param="model", retry_after=1))
    client = client_for(reply.status, "application/json", reply.headers, reply.body)
    with pytest.raises(RateLimitError) as caught:
        client.chat.completions.create(model="m", messages=[])
    assert (caught.value.type, caught.value.code, caught.value.param) == ("requests", "rate_limit_exceeded", "model")


@pytest.mark.parametrize("kind", ProblemKind)
def test_every_kind_of_problem_has_a_status_and_a_body(kind: ProblemKind) -> None:
    reply = OpenAI().error(Problem(kind=kind, message="why"))
    error = json.loads(reply.body)["error"]
    assert reply.status >= 400
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"] == "why"
    assert (error["type"] == "server_error") == (reply.status >= 500)
    assert APIError("why", None, body=error).type == error["type"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "status", "type_", "code"),
    [
        (ProblemKind.INVALID, 400, "invalid_request_error", None),
        (ProblemKind.CONTEXT_LENGTH, 400, "invalid_request_error", "context_length_exceeded"),
        (ProblemKind.MODEL_NOT_FOUND, 404, "invalid_request_error", "model_not_found"),
        (ProblemKind.METHOD_NOT_ALLOWED, 405, "invalid_request_error", "method_not_supported"),
        (ProblemKind.TIMEOUT, 408, "invalid_request_error", "request_timeout"),
        (ProblemKind.TOO_LARGE, 413, "invalid_request_error", "request_too_large"),
        (ProblemKind.UNSUPPORTED_MEDIA, 415, "invalid_request_error", "unsupported_content_type"),
        (ProblemKind.QUEUE_FULL, 429, "requests", "rate_limit_exceeded"),
        (ProblemKind.INTERNAL, 500, "server_error", "internal_error"),
        (ProblemKind.NO_WORKER, 503, "server_error", "no_worker"),
    ],
)
def test_status_type_and_code(kind: ProblemKind, status: int, type_: str, code: str | None) -> None:
    reply = OpenAI().error(Problem(kind=kind, message="why"))
    error = json.loads(reply.body)["error"]
    assert (reply.status, error["type"], error["code"]) == (status, type_, code)


def test_a_problem_brings_its_own_param_and_code() -> None:
    problem = Problem(kind=ProblemKind.CONTEXT_LENGTH, message="why", param="prompt", code="other")
    error = json.loads(OpenAI().error(problem).body)["error"]
    assert (error["param"], error["code"]) == ("prompt", "other")


def test_the_retry_time_is_sent_in_both_units() -> None:
    reply = OpenAI().error(Problem(kind=ProblemKind.QUEUE_FULL, message="full", retry_after=1.2))
    assert reply.headers == {"retry-after": "2", "retry-after-ms": "1200"}


def test_a_request_that_would_do_harm_again_is_not_retried() -> None:
    reply = OpenAI().error(Problem(kind=ProblemKind.POISON, message="why"))
    assert reply.headers == {"x-should-retry": "false"}


def test_models() -> None:
    models = [ModelInfo(name=name, created=5, context_length=8192, modalities=(TEXT, IMAGE)) for name in ("b", "a/c")]
    page = checked(SyncPage[Model], render_models(models))
    assert [model.id for model in page.data] == ["b", "a/c"]
    assert page.object == "list"
    one = complete(Model, render_model(models[1]))
    assert (one.id, one.object, one.created, one.owned_by) == ("a/c", "model", 5, "vinoqueue")
    # vLLM's addition: the context length in tokens.
    assert one.model_dump()["max_model_len"] == 8192
    assert one.model_dump()["input_modalities"] == ["text", "image"]
    assert "max_input_tokens" not in one.model_dump()
    on_npu = msgspec.structs.replace(models[0], max_prompt=1024)
    assert json.loads(render_model(on_npu))["max_input_tokens"] == 1024


def test_a_model_has_the_formats_of_its_calls_and_reasoning() -> None:
    formats = ModelFormats(tool_parser="hermes", replaced=("tools_as_text",), warnings=("key",))
    model = ModelInfo(name="a", created=5, context_length=8192, formats=formats)
    shown = checked(Model, render_model(model)).model_dump()["formats"]
    assert shown == {
        "tool_parser": "hermes",
        "reasoning_parser": "none",
        "replaced": ["tools_as_text"],
        "warnings": ["key"],
    }
