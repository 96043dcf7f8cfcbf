"""OpenAI's files and batches."""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import msgspec

from api.batches.forms import parse_batch, parse_page, render_batch
from api.batches.input import validate_file
from api.batches.record import Batch, Counts, LineError
from api.batches.results import failure_of, response_of
from api.files import FileRecord
from api.files.forms import parse_selection, parse_upload, render_file
from api.files.upload import Upload
from shared.protocol.errors import ProblemKind, refuse
from tests.compatibility.adapter import Adapter
from tests.compatibility.common import CACHED_TOKENS
from tests.compatibility.rows import Answer, Interface, Request

_CHAT = "/v1/chat/completions"


class _Files(Adapter):
    def read(self, body: dict[str, Any], query: Mapping[str, str]) -> None:
        filename = body.pop("file")
        expiry = body.pop("expires_after", {})
        body |= {f"expires_after[{name}]": str(value) for name, value in expiry.items()}
        parse_upload(Upload(filename=filename, fields=body))
        parse_selection(query)

    def document(self) -> bytes:
        return render_file(
            FileRecord(id="file-1", owner="", filename="f", size=1, purpose="batch", created=1, expires=2)
        )


class _Batches(Adapter):
    def read(self, body: dict[str, Any], query: Mapping[str, str]) -> None:
        parse_batch(json.dumps(body).encode(), owner="", now=1.0)
        parse_page(query)

    def document(self) -> bytes:
        batch = Batch(
            id="batch_1",
            owner="",
            endpoint=_CHAT,
            input_file="file-1",
            created=1,
            expires=2,
            metadata={"k": "v"},
            retention=3600,
            errors=(LineError(code="c", message="m", line=1, param="p"),),
            model="m",
            counts=Counts(
                total=3,
                completed=2,
                failed=1,
                prompt_tokens=1,
                cached_tokens=1,
                completion_tokens=1,
                reasoning_tokens=1,
            ),
            output_file="file-2",
            error_file="file-3",
        )
        for status in ("in_progress", "finalizing", "failed", "expired", "cancelling", "cancelled", "completed"):
            batch = batch.at(status, 1)
        return render_batch(batch)


class _Lines(Adapter):
    def read(self, body: dict[str, Any], query: Mapping[str, str]) -> None:
        for error in validate_file(BytesIO(json.dumps(body).encode()), _CHAT, 1000).errors:
            raise refuse(ProblemKind.INVALID, error.message, param=error.param)

    def document(self) -> bytes:
        good = msgspec.json.decode(response_of(0, "c", 200, b'{"id":"c"}', request_id="r").json)
        bad = msgspec.json.decode(failure_of(0, "c", "batch_expired", "m").json)
        return msgspec.json.encode(good | {"error": bad["error"]})


ERROR = Answer(
    fields="error error.message error.type error.param error.code",
    how="As under `/v1/chat/completions`.",
)

FILES = Interface(
    title="OpenAI: files",
    route="/v1/files",
    about="The form of an upload, and the query of a list. A file belongs to the API key that created it.",
    dialect=lambda query, _: _Files(query),
    plain={"file": "in.jsonl", "purpose": "batch"},
    requests=(
        Request(
            fields="file",
            how="Streamed to disk; at most `--max-file-bytes`.",
        ),
        Request(fields="purpose", when="batch", how="The only supported purpose."),
        Request(
            fields="purpose",
            when="assistants, fine-tune, vision, user_data, evals",
            body={"purpose": "assistants"},
        ),
        Request(
            fields="expires_after expires_after.anchor expires_after.seconds",
            body={"expires_after": {"anchor": "created_at", "seconds": 3600}},
            how="1 hour to 30 days. Default: 30 days.",
        ),
        Request(
            fields="?after ?limit ?order ?purpose",
            query={"after": "file-0", "limit": "10", "order": "asc", "purpose": "batch"},
            how="Default: newest first, 10,000 per page.",
        ),
    ),
    answers=(
        Answer(
            fields="id object bytes created_at expires_at filename purpose",
            how="`purpose` is `batch_output` for results.",
        ),
        Answer(
            fields="status status_details",
            how="Deprecated by OpenAI.",
        ),
        ERROR,
    ),
)

BATCHES = Interface(
    title="OpenAI: batches",
    route="POST /v1/batches",
    about="The body of a new batch, and the query of a list. See [batches](batches.md).",
    dialect=lambda query, _: _Batches(query),
    plain={"input_file_id": "file-1", "endpoint": _CHAT, "completion_window": "24h"},
    requests=(
        Request(
            fields="input_file_id",
            how="A file of the same API key, else 404.",
        ),
        *(
            Request(
                fields="endpoint",
                when=endpoint,
                body={"endpoint": endpoint},
                how="Served.",
            )
            for endpoint, test in (
                (_CHAT, "test_a_batch_from_beginning_to_end"),
                ("/v1/completions", "test_plain_completions_and_a_blank_last_line"),
                ("/v1/responses", "test_responses"),
            )
        ),
        *(
            Request(fields="endpoint", when=endpoint, body={"endpoint": endpoint})
            for endpoint in (
                "/v1/embeddings",
                "/v1/moderations",
                "/v1/images/generations",
                "/v1/images/edits",
                "/v1/videos",
            )
        ),
        Request(fields="completion_window", how="`24h`, as with OpenAI."),
        Request(fields="metadata", body={"metadata": {"k": "v"}}, how="Returned with the batch."),
        Request(
            fields="output_expires_after output_expires_after.anchor output_expires_after.seconds",
            body={"output_expires_after": {"anchor": "created_at", "seconds": 3600}},
            how="1 hour to 30 days after the result files are complete. Default: 30 days.",
        ),
        Request(
            fields="?after ?limit",
            query={"after": "batch_0", "limit": "10"},
            how="Newest first. Default: 20 per page.",
        ),
    ),
    answers=(
        Answer(
            fields="id object endpoint input_file_id completion_window status created_at expires_at in_progress_at "
            "finalizing_at completed_at metadata metadata.k",
            how="Each status has a time.",
        ),
        Answer(
            fields="failed_at errors errors.object errors.data errors.data[].code errors.data[].message "
            "errors.data[].param errors.data[].line",
            how="At most 100 errors of the input file.",
        ),
        Answer(
            fields="cancelling_at cancelled_at",
            how="From the request to cancel.",
        ),
        Answer(
            fields="expired_at",
            how="After the completion window.",
        ),
        Answer(
            fields="request_counts request_counts.total request_counts.completed request_counts.failed "
            "output_file_id error_file_id",
            how="The files have ids when the batch has ended. A file that would be empty does not exist.",
        ),
        Answer(
            fields="model",
            how="If all lines name the same model.",
        ),
        Answer(
            fields="usage usage.input_tokens usage.input_tokens_details usage.input_tokens_details.cached_tokens "
            "usage.output_tokens usage.output_tokens_details usage.output_tokens_details.reasoning_tokens "
            "usage.total_tokens",
            how=f"Of the results so far. {CACHED_TOKENS}",
        ),
        ERROR,
    ),
)

LINES = Interface(
    title="OpenAI: batch requests",
    route="Input, output and error files",
    about="One JSON object per line. A refusal is an entry in the batch's `errors`.",
    dialect=lambda query, _: _Lines(query),
    plain={"custom_id": "1", "method": "POST", "url": _CHAT, "body": {"model": "m"}},
    requests=(
        Request(
            fields="custom_id method url body",
            how="Required: a unique `custom_id`, the method `POST`, and the batch's endpoint as `url`.",
        ),
        Request(fields="method", when="GET", body={"method": "GET"}),
        Request(fields="url", when="another one", body={"url": "/v1/completions"}),
        Request(
            fields="body.stream",
            body={"body": {"stream": True}},
            how="The batch is accepted; the line gets a 400 in the error file.",
        ),
    ),
    answers=(
        Answer(
            fields="id custom_id response response.status_code response.request_id response.body response.body.id",
            how="In the order of the input.",
        ),
        Answer(
            fields="error error.code error.message error.type error.param",
            how="`batch_cancelled`, `batch_expired` or `request_timeout` where there is no response.",
        ),
    ),
)
