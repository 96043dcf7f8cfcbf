"""The fields of a request that its response repeats, and those that decide on its form."""

from collections.abc import Mapping
from typing import Any

from api.dialects.base.fields import left_out
from api.dialects.responses.schema import ResponsesRequest

PLAIN_TEXT = {"type": "text"}


def echoed_fields(request: ResponsesRequest, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with their defaults, except those that models have: ``temperature`` and ``top_p``.

    ``sent`` is the body of ``request``.
    """
    text = request.text
    summary = request.reasoning.summary if request.reasoning else None
    summary = summary or (request.reasoning.generate_summary if request.reasoning else None)
    chosen = sent.get("tool_choice") or "auto"
    form = _given((sent.get("text") or {}).get("format") or PLAIN_TEXT)
    if form["type"] == "json_schema":
        form = {"name": "response", "description": None, "strict": False} | form
        form["strict"] = bool(form["strict"])
    return {
        "frequency_penalty": request.frequency_penalty or 0.0,
        # Not repeated.
        "include": request.include or [],
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "presence_penalty": request.presence_penalty or 0.0,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "prompt_cache_retention": request.prompt_cache_retention,
        "reasoning": {
            "effort": request.reasoning.effort if request.reasoning else None,
            "summary": None if summary == "none" else summary,
        },
        "safety_identifier": request.safety_identifier,
        "service_tier": _tier(request),
        "temperature": request.temperature,
        "text": {"format": form, "verbosity": (text.verbosity if text else None) or "medium"},
        "tool_choice": _given(chosen) if isinstance(chosen, Mapping) else chosen,
        "tools": [_tool(tool) for tool in sent.get("tools") or () if tool["type"] in ("function", "custom")],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": request.top_p,
        "truncation": request.truncation or "disabled",
        "user": request.user,
    }


def _given(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without members that are as if left out."""
    return {name: given for name, given in value.items() if not left_out(given)}


def _tier(request: ResponsesRequest) -> str:
    tier = request.service_tier
    return {"fast": "priority", "auto": "default"}.get(tier or "auto", tier or "default")


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] == "custom":
        return _given(tool) | {"format": _given(tool.get("format") or PLAIN_TEXT)}
    shown = {"description": None, "parameters": None} | _given(tool)
    return shown | {"strict": bool(tool.get("strict"))}
