"""The Responses API of OpenVINO Model Server, at ``/v3/responses``: OpenAI's with the model server's own fields.

Source: the model server's page on its responses endpoint. It stores nothing, so what needs stored responses is refused.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import ConfigDict, Field

from api.dialects.base.body import decode_object, json_text
from api.dialects.base.sampling import Beams, EngineSampling, Flag, LengthPenalty
from api.dialects.base.unsupported import unsupported
from api.dialects.base.validation import invalid
from api.dialects.openai.extended import check_combinations
from api.dialects.openai.extensions import with_variables
from api.dialects.ovms.parse import Seed, TopP, finished, take_structure
from api.dialects.responses import Responses
from api.dialects.responses.parse import StoredConversation, validated
from api.dialects.responses.render import ResponsesEncoder
from api.dialects.responses.schema import ResponsesRequest
from shared.protocol.request import ChatRequest

STORED_FIELDS = ("background", "previous_response_id", "store")
"""Fields that are about stored responses."""


class ModelServerResponsesRequest(ResponsesRequest, EngineSampling):
    """The body of ``POST /v3/responses``."""

    model_config = ConfigDict(extra="allow")
    answered_calls: ClassVar[bool] = False

    best_of: Beams | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    length_penalty: LengthPenalty | None = None
    logprobs: Flag | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    seed: Seed | None = None
    top_p: TopP | None = None


class ModelServerResponses(Responses):
    """The :class:`api.dialects.base.interface.Dialect` of ``/v3/responses``."""

    def parse(self, body: bytes) -> ChatRequest:
        value = decode_object(body)
        for field in STORED_FIELDS:
            if value.get(field):
                raise unsupported(field, "Responses under /v3 are not stored; those under /v1 can be.")
        structure = take_structure(value)
        _rename(value)
        valid = validated(ModelServerResponsesRequest, value)
        request = finished(valid.request(StoredConversation(), store=False), value, structure)
        check_combinations(request.sampling)
        return msgspec.structs.replace(request, template_kwargs=_template_kwargs(valid.body, request.template_kwargs))

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponsesEncoder:
        """Return the encoder of the response to ``request``. Streams end with ``[DONE]`` as in the reference."""
        return ResponsesEncoder(request, response_id=response_id, created=created, done=b"data: [DONE]\n\n")


def _rename(value: dict[str, Any]) -> None:
    """Give the fields of chat completions that the model server takes here too their names in the Responses API."""
    tools = value.get("tools")
    if isinstance(tools, list):
        value["tools"] = [_flat(tool) for tool in tools]
    if "tool_choice" in value:
        value["tool_choice"] = _flat(value["tool_choice"])
    if "max_tokens" in value:
        value.setdefault("max_output_tokens", value.pop("max_tokens"))
    if isinstance(value.get("input"), list):
        value["input"] = [*_items(value["input"])]
    form = value.pop("response_format", None)
    if form is None:
        return
    if isinstance(form, dict) and isinstance(form.get("json_schema"), dict):
        form = {name: inner for name, inner in form.items() if name != "json_schema"} | form["json_schema"]
    text = value.get("text")
    if text is not None:
        raise invalid("response_format", "it can't be combined with 'text'")
    value["text"] = {"format": form}


def _items(items: Iterable[Any]) -> Iterator[Any]:
    """Yield items with the URLs of their images as texts, and with the ids of calls that may be left out.

    A call has the id of its item, and an output that of the call before it.
    """
    called: Any = None
    for item in items:
        match item:
            case {"type": "function_call" | "function_call_output" as kind, **fields}:
                own = item.get("call_id")
                called = own if own is not None else item.get("id") if kind == "function_call" else called
                yield {"type": kind, **fields, "call_id": called}
            case {"content": [*parts], **fields}:
                yield {**fields, "content": [_part(part) for part in parts]}
            case _:
                yield item


def _part(part: Any) -> Any:
    if not isinstance(part, dict) or not isinstance(part.get("image_url"), dict):
        return part
    return {"detail": part["image_url"].get("detail")} | part | {"image_url": part["image_url"].get("url")}


def _flat(tool: Any) -> Any:
    """Return a function or the choice of one without the object inside it."""
    if not isinstance(tool, dict) or not isinstance(tool.get("function"), dict):
        return tool
    return {name: inner for name, inner in tool.items() if name != "function"} | tool["function"]


def _template_kwargs(body: ModelServerResponsesRequest, own: str | None) -> str | None:
    """Return the template variables. By the reference, any ``reasoning`` enables thinking."""
    variables: dict[str, Any] = {}
    if body.reasoning is not None and body.reasoning.effort != "none":
        variables["enable_thinking"] = True
    variables |= json.loads(own or "{}")
    return with_variables(json_text(variables) if variables else None, body.chat_template_kwargs)
