"""Stored completions, models, files and batches against the types of OpenAI's SDK: each field is there."""

import json
from collections.abc import Callable, Sequence

import pytest
from openai.types import Batch as SDKBatch
from openai.types import FileDeleted, FileObject
from openai.types.chat import ChatCompletion, ChatCompletionDeleted

from api.batches import forms as batches
from api.batches.record import Batch, BatchCounts, BatchStatus, LineError
from api.dialects.base.interface import Choice, Usage
from api.dialects.base.lists import render_deleted
from api.dialects.openai import OpenAI
from api.files import forms as files
from api.files.record import FileRecord
from api.responses import completion_forms
from api.stored.record import StoredResponse
from tests.support.sdk_types import complete

USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
CHOICE = Choice(index=0, text="Hi", reason="stop")
TIME = 1_700_000_000


def test_stored_completions_have_every_field() -> None:
    dialect = OpenAI()
    asked = dialect.parse(b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}], "store": true}')
    document = dialect.render(asked, response_id="a", created=1, fingerprint="fp").completion([CHOICE], USAGE)
    record = StoredResponse(id="chatcmpl-a", model="m", created=1, document=document, input=b"[]", metadata={"a": "b"})
    shown = complete(ChatCompletion, completion_forms.render_stored(record))
    assert shown.metadata == {"a": "b"}
    check_page(completion_forms.render_page([record], more=False), lambda one: complete(ChatCompletion, one))
    complete(ChatCompletionDeleted, render_deleted("a", "chat.completion.deleted"))


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
