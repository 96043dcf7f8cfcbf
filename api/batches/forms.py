"""Batches: their endpoints, the body and the queries of their routes, and their JSON."""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from api.batches.record import COMPLETION_WINDOW, Batch, BatchCounts, new_batch_id
from api.dialects import BATCHED
from api.dialects.base.body import decode_object
from api.dialects.base.fields import Strict
from api.dialects.base.lists import render_list
from api.dialects.base.validation import listed, validate
from api.dialects.openai.schema import Metadata
from api.files.forms import ExpiresAfter
from api.files.record import LONGEST_RETENTION
from shared.protocol.errors import ProblemKind, RequestRefused, refuse


class CreateBatchRequest(Strict):
    input_file_id: str
    endpoint: Annotated[str, Field(json_schema_extra={"enum": [*BATCHED]})]
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchesQuery(Strict):
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


def parse_batch(body: bytes, *, owner: str, now: float) -> Batch:
    """Return the batch that ``body`` asks for. Raises :class:`RequestRefused`."""
    asked = validate(CreateBatchRequest, decode_object(body))
    if asked.endpoint not in BATCHED:
        raise refuse(
            ProblemKind.INVALID,
            f"Unsupported value: 'endpoint' does not support '{asked.endpoint}' on this server. "
            f"Supported values are: {listed(list(BATCHED))}.",
            param="endpoint",
            code="unsupported_value",
        )
    expiry = asked.output_expires_after
    return Batch(
        id=new_batch_id(),
        owner=owner,
        endpoint=asked.endpoint,
        input_file=asked.input_file_id,
        created=int(now),
        expires=int(now) + COMPLETION_WINDOW,
        metadata=asked.metadata,
        retention=expiry.seconds if expiry is not None else LONGEST_RETENTION,
    )


def render_batch(batch: Batch) -> bytes:
    return msgspec.json.encode(_object(batch))


def render_batches(batches: list[Batch], *, more: bool) -> bytes:
    return render_list([_object(batch) for batch in batches], [batch.id for batch in batches], more=more)


def not_found(batch_id: str) -> RequestRefused:
    return refuse(ProblemKind.NOT_FOUND, f"No batch found with id '{batch_id[:64]}'.", param="batch_id")


def not_cancellable(batch: Batch) -> RequestRefused:
    """Return the refusal of cancelling a batch that has ended."""
    message = f"Cannot cancel a batch with status '{batch.status}'."
    return refuse(ProblemKind.INVALID, message, param="batch_id", code="invalid_batch_status")


def _object(batch: Batch) -> dict[str, Any]:
    ended = batch.status in ("completed", "expired", "cancelled")
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "model": batch.model,
        "errors": {"object": "list", "data": [_error(error) for error in batch.errors]} if batch.errors else None,
        "input_file_id": batch.input_file,
        "completion_window": "24h",
        "status": batch.status,
        "output_file_id": batch.output_file if ended else None,
        "error_file_id": batch.error_file if ended else None,
        "created_at": batch.created,
        "expires_at": batch.expires,
        **{f"{status}_at": batch.times.get(status) for status in _TIMED},  # type: ignore[call-overload]
        "request_counts": {
            "total": batch.counts.total,
            "completed": batch.counts.completed,
            "failed": batch.counts.failed,
        },
        "usage": _usage(batch.counts),
        "metadata": batch.metadata,
    }


_TIMED = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


def _error(error: Any) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "param": error.param, "line": error.line}


def _usage(counts: BatchCounts) -> dict[str, Any]:
    return {
        "input_tokens": counts.prompt_tokens,
        "input_tokens_details": {"cached_tokens": counts.cached_tokens},
        "output_tokens": counts.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning_tokens},
        "total_tokens": counts.prompt_tokens + counts.completion_tokens,
    }
