"""Chat completions, completions, models, files and batches against the types of OpenAI's SDK: each field is there."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from openai.types import Batch as SDKBatch
from openai.types import Completion, FileDeleted, FileObject, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionDeleted
from openai.types.shared import ErrorObject
from pydantic import BaseModel

from api.batches import forms as batches
from api.batches.record import Batch, BatchCounts, BatchStatus, LineError
from api.dialects.base.interface import Call, Choice, TokenLogprob, Usage
from api.dialects.base.lists import render_deleted
from api.dialects.base.models import render_model, render_models
from api.dialects.openai import OpenAI, OpenAICompletions
from api.files import forms as files
from api.files.record import FileRecord
from api.responses import completion_forms
from api.stored.record import StoredResponse
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import TopToken
from shared.protocol.registry import ModelInfo
from tests.support.sdk_types import CompletionChunk, complete

USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
CALLS = (Call(id="c1", name="f", arguments='{"a":1}'), Call(id="c2", name="g", arguments=""))
LOGPROBS = (TokenLogprob(b"H", -0.5, (TopToken(b"H", -0.5), TopToken(b"h", -1.5))), TokenLogprob(b"\xc3", -0.1))
TEXTS = [
    Choice(index=0, text="", reason="stop"),
    Choice(index=0, text="Hi", reason="length", logprobs=LOGPROBS),
    Choice(index=0, text="Hi", reason="stop", stop="END"),
]
CHOICES = [
    *TEXTS,
    Choice(index=0, text="", reasoning="Hm.", reason="length"),
    Choice(index=0, text="", reason="tool_calls", calls=CALLS),
]
CHATS: Sequence[dict[str, Any]] = [{}, {"stream_options": {"include_usage": True}, "service_tier": "auto"}]
_WHERE_IT_APPLIES = {"moderation", "metadata", "service_tier", "usage"}
OMITTED = {
    "ChatCompletion": _WHERE_IT_APPLIES,
    "ChatCompletionChunk": _WHERE_IT_APPLIES | {"obfuscation"},
    "ChatCompletionMessage": {"audio", "function_call", "tool_calls"},
    "ChoiceDelta": {"audio", "content", "function_call", "refusal", "role", "tool_calls"},
    "ChoiceDeltaToolCall": {"id", "type"},
    "ChoiceDeltaToolCallFunction": {"name"},
    "CompletionChunk": {"usage"},
    "CompletionTokensDetails": {"text_tokens"},
    "PromptTokensDetails": {"cache_write_tokens", "image_tokens", "text_tokens"},
    "Model": {"shutdown_date"},
    "ErrorObject": {"misalignment"},
}
"""Fields that the reference sends only where they apply."""
TIME = 1_700_000_000


def check_stream(stream: bytes, kind: type[BaseModel]) -> int:
    """Check each event, and return their number."""
    *chunks, done = stream.split(b"\n\n")[:-1]
    assert done == b"data: [DONE]"
    for chunk in chunks:
        complete(kind, chunk.removeprefix(b"data: "), OMITTED)
    return len(chunks)


@pytest.mark.parametrize("fields", CHATS)
@pytest.mark.parametrize("choice", CHOICES)
def test_chat_completions_have_every_field(choice: Choice, fields: dict[str, Any]) -> None:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Hello"}], **fields}
    dialect = OpenAI()
    by = dialect.render(dialect.parse(json.dumps(body).encode()), response_id="a", created=1, fingerprint="fp")
    whole = complete(ChatCompletion, by.completion([choice], USAGE), OMITTED)
    assert whole.usage is not None
    stream = by.opening(0) + by.whole(choice) + by.usage(USAGE) + by.done
    assert check_stream(stream, ChatCompletionChunk) >= 2


@pytest.mark.parametrize("fields", [{}, {"stream_options": {"include_usage": True}}])
@pytest.mark.parametrize("choice", TEXTS)
def test_completions_have_every_field(choice: Choice, fields: dict[str, Any]) -> None:
    dialect = OpenAICompletions()
    body = {"model": "m", "prompt": "Hello", "stream": True, **fields}
    by = dialect.render(dialect.parse(json.dumps(body).encode()), response_id="a", created=1, fingerprint="fp")
    complete(Completion, by.completion([choice], USAGE), OMITTED)
    stream = by.opening(0) + by.whole(choice) + by.usage(USAGE) + by.done
    assert check_stream(stream, CompletionChunk) >= (2 if choice.text else 1)


@pytest.mark.parametrize("kind", list(ProblemKind))
def test_errors_have_every_field(kind: ProblemKind) -> None:
    reply = OpenAI().error(Problem(kind=kind, message="why"))
    complete(ErrorObject, json.dumps(json.loads(reply.body)["error"]), OMITTED)


def test_stored_completions_have_every_field() -> None:
    dialect = OpenAI()
    asked = dialect.parse(b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}], "store": true}')
    document = dialect.render(asked, response_id="a", created=1, fingerprint="fp").completion(CHOICES[1:2], USAGE)
    record = StoredResponse(id="chatcmpl-a", model="m", created=1, document=document, input=b"[]", metadata={"a": "b"})
    shown = complete(ChatCompletion, completion_forms.render_stored(record), OMITTED)
    assert shown.metadata == {"a": "b"}
    check_page(completion_forms.render_page([record], more=False), lambda one: complete(ChatCompletion, one, OMITTED))
    complete(ChatCompletionDeleted, render_deleted("a", "chat.completion.deleted"))


def test_models_have_every_field() -> None:
    model = ModelInfo(name="m", created=TIME, context_length=8192)
    complete(Model, render_model(model), OMITTED)
    page = json.loads(render_models([model]))
    assert page == {"object": "list", "data": [json.loads(render_model(model))]}


def test_files_have_every_field() -> None:
    record = FileRecord(id="f", owner="", filename="a.jsonl", size=3, purpose="batch", created=TIME, expires=TIME + 9)
    complete(FileObject, files.render_file(record))
    complete(FileDeleted, render_deleted("f", "file"))
    check_page(files.render_files([record], more=False), lambda one: complete(FileObject, one))


STATUSES: Sequence[BatchStatus] = (
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
)


@pytest.mark.parametrize("status", STATUSES)
def test_batches_have_every_field(status: BatchStatus) -> None:
    batch = Batch(
        id="b",
        owner="",
        endpoint="/v1/completions",
        input_file="f",
        created=TIME,
        expires=TIME + 9,
        retention=9,
        errors=(LineError(code="invalid", message="why", line=2), LineError(code="empty", message="why")),
        counts=BatchCounts(total=3, completed=1, failed=1, prompt_tokens=5),
    ).at(status, TIME)
    shown = complete(SDKBatch, batches.render_batch(batch))
    assert shown.status == status
    check_page(batches.render_batches([batch], more=True), lambda one: complete(SDKBatch, one))


def check_page(document: bytes, check: Callable[[str], object]) -> None:
    """Check a page and its objects."""
    page = json.loads(document)
    assert page.keys() == {"object", "data", "first_id", "last_id", "has_more"}
    assert (page["object"], page["first_id"]) == ("list", page["data"][0]["id"])
    for one in page["data"]:
        check(json.dumps(one))
