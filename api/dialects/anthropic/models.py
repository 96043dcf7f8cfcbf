"""Response bodies of ``/v1/models`` and ``/v1/models/{id}`` for Anthropic's clients."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from api.dialects.anthropic.parse import EFFORTS
from api.dialects.base.fields import Items, Strict
from api.dialects.base.query import validate_query
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.registry import IMAGE, ModelInfo


class ModelsQuery(Strict):
    after_id: str | None = None
    before_id: str | None = None
    lifecycle: Annotated[Items[Literal["active", "deprecated", "retired"]], Field(max_length=3)] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 20


def render_model(model: ModelInfo) -> bytes:
    return msgspec.json.encode(_model_object(model))


def render_models(models: Sequence[ModelInfo], query: Mapping[str, str]) -> bytes:
    """Encode a page of ``models`` as JSON, in the given order. All models are active.

    Raises :class:`RequestRefused` for an invalid query, and if there is no model that it names as a cursor.
    """
    wanted = validate_query(ModelsQuery, query)
    if wanted.lifecycle and "active" not in wanted.lifecycle:
        models = ()
    names = [model.name for model in models]
    start, end = 0, len(names)
    if wanted.after_id is not None:
        start = _place(names, wanted.after_id, "after_id") + 1
    if wanted.before_id is not None:
        end = _place(names, wanted.before_id, "before_id")
        start = max(start, end - wanted.limit) if wanted.after_id is None else start
    page = models[start : min(end, start + wanted.limit)]
    more = start > 0 if wanted.before_id is not None and wanted.after_id is None else start + len(page) < end
    return msgspec.json.encode(
        {
            "data": [_model_object(model) for model in page],
            "first_id": page[0].name if page else None,
            "last_id": page[-1].name if page else None,
            "has_more": more,
        }
    )


def _place(names: Sequence[str], name: str, param: str) -> int:
    if name not in names:
        raise refuse(ProblemKind.INVALID, f"no model is called '{name[:64]}'", param=param)
    return names.index(name)


def _model_object(model: ModelInfo) -> dict[str, object]:
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z"),
        "allowed_fallback_models": None,
        "line": None,
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "max_input_tokens": model.max_prompt or model.context_length,
        "max_tokens": model.context_length,
        "capabilities": _capabilities(sees=IMAGE in model.modalities),
    }


def _capabilities(*, sees: bool) -> dict[str, object]:
    """Return what requests may ask for. ``sees`` is whether the model takes images."""
    yes, no = {"supported": True}, {"supported": False}
    thinking = dict.fromkeys(("enabled", "adaptive", "disabled"), yes) | {"between_tools": no}
    edits = {"clear_thinking_20251015": no, "clear_tool_uses_20250919": no, "compact_20260112": no}
    return {
        "batch": no,
        "citations": no,
        "code_execution": no,
        "compaction": None,
        "context_management": no | edits,
        "effort": yes | dict.fromkeys(EFFORTS, yes),
        "image_input": {"supported": sees},
        "pdf_input": no,
        "server_tools": no | {"code_execution": no, "web_search": no},
        "structured_outputs": yes,
        "thinking": yes | {"types": thinking},
    }
