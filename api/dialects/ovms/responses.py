"""The Responses API of OpenVINO Model Server, at ``/v3/responses``: OpenAI's with the model server's own fields.

Source: the model server's page on its responses endpoint. It stores nothing, so what needs stored responses is refused.
"""

import json
from typing import Annotated, Any

import msgspec
from pydantic import Field

from api.dialects.base.body import decode_object, json_text
from api.dialects.base.interface import ErrorReply
from api.dialects.base.validation import invalid
from api.dialects.openai.extended import EngineFields
from api.dialects.openai.extensions import NATIVE_VARIABLES
from api.dialects.openai.schema import MAX_COUNT, Stop
from api.dialects.ovms.parse import DEFAULTS, Seed, Share, take_structure, with_local_files
from api.dialects.responses import Responses
from api.dialects.responses.parse import History, draft_of
from api.dialects.responses.render import ResponsesEncoder
from api.dialects.responses.schema import ResponsesRequest
from shared.protocol.errors import Problem, ProblemKind, refuse
from shared.protocol.request import ChatRequest, Sampling

STORED_FIELDS = ("background", "previous_response_id", "store")
"""Fields that are about stored responses."""
_NOT_HERE = "This interface does not support it; /v1 may."


class ModelServerResponsesRequest(ResponsesRequest, EngineFields):
    """The body of ``POST /v3/responses``."""

    best_of: Annotated[int, Field(ge=1, le=128)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    logprobs: bool | None = None
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    seed: Seed | None = None
    skip_special_tokens: bool | None = None
    stop: Stop | None = None
    top_k: Annotated[int, Field(ge=-1, le=MAX_COUNT)] | None = None
    top_p: Share | None = None


class ModelServerResponses:
    """The :class:`api.dialects.base.interface.Dialect` of ``/v3/responses``, instantiated for each HTTP exchange."""

    def __init__(self) -> None:
        self._responses = Responses()

    @property
    def skipped_tools(self) -> tuple[str, ...]:
        """Types of the tools that the request offers and the model does not get."""
        return self._responses.skipped_tools

    def parse(self, body: bytes) -> ChatRequest:
        """Parse a request body. Raises :class:`RequestRefused` and no other exception."""
        value = decode_object(body)
        for field in STORED_FIELDS:
            if value.get(field):
                message = f"Unsupported parameter: '{field}'. {_NOT_HERE}"
                raise refuse(ProblemKind.INVALID, message, param=field, code="unsupported_parameter")
        structure = take_structure(value)
        _rename(value)
        draft = draft_of(ModelServerResponsesRequest, value)
        self._responses.skipped_tools = draft.skipped_tools
        request = draft.request(History(), store=False)
        return msgspec.structs.replace(
            request,
            messages=tuple(map(with_local_files, request.messages)),
            sampling=_sampling(draft.body, request),
            defaults=DEFAULTS,
            constraint=structure or request.constraint,
            template_kwargs=_template_kwargs(draft.body, request.template_kwargs),
        )

    def render(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> ResponsesEncoder:
        """Return the encoder of the response to ``request``. Streams end with ``[DONE]`` as in the reference."""
        return ResponsesEncoder(request, answer_id=answer_id, created=created, done=b"data: [DONE]\n\n")

    def error(self, problem: Problem) -> ErrorReply:
        """Encode an error as under ``/v1``."""
        return self._responses.error(problem)


def _rename(value: dict[str, Any]) -> None:
    """Give the fields of chat completions that the model server takes here too their names in the Responses API."""
    tools = value.get("tools")
    if isinstance(tools, list):
        value["tools"] = [_flat(tool) for tool in tools]
    if "tool_choice" in value:
        value["tool_choice"] = _flat(value["tool_choice"])
    form = value.pop("response_format", None)
    if form is None:
        return
    if isinstance(form, dict) and isinstance(form.get("json_schema"), dict):
        form = {name: inner for name, inner in form.items() if name != "json_schema"} | form["json_schema"]
    text = value.get("text")
    if text is not None:
        raise invalid("response_format", "it can't be combined with 'text'")
    value["text"] = {"format": form}


def _flat(tool: Any) -> Any:
    """Return a function or the choice of one without the object inside it."""
    if not isinstance(tool, dict) or not isinstance(tool.get("function"), dict):
        return tool
    return {name: inner for name, inner in tool.items() if name != "function"} | tool["function"]


def _sampling(body: ModelServerResponsesRequest, request: ChatRequest) -> Sampling:
    # A stream can't retract the sent beginning of a stop string, so by the reference streams always include it.
    if request.stream and body.include_stop_str_in_output is False:
        raise invalid("include_stop_str_in_output", "it can't be false when 'stream' is true")
    if body.num_assistant_tokens is not None and body.assistant_confidence_threshold is not None:
        raise invalid("assistant_confidence_threshold", "it can't be used together with 'num_assistant_tokens'")
    return msgspec.structs.replace(
        request.sampling,
        top_k=0 if body.top_k == -1 else body.top_k,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        include_stop=request.stream or bool(body.include_stop_str_in_output),
        ignore_eos=bool(body.ignore_eos),
        skip_special_tokens=body.skip_special_tokens is not False,
        logprobs=request.sampling.logprobs or bool(body.logprobs),
        beams=body.best_of or 1,
        length_penalty=body.length_penalty,
        num_assistant_tokens=body.num_assistant_tokens,
        assistant_confidence_threshold=body.assistant_confidence_threshold,
        max_ngram_size=body.max_ngram_size,
    )


def _template_kwargs(body: ModelServerResponsesRequest, own: str | None) -> str | None:
    """Return the template variables. By the reference, any ``reasoning`` enables thinking."""
    variables: dict[str, Any] = {}
    if body.reasoning is not None and body.reasoning.effort != "none":
        variables["enable_thinking"] = True
    given = body.chat_template_kwargs or {}
    if reserved := sorted(NATIVE_VARIABLES & given.keys()):
        raise invalid("chat_template_kwargs", f"'{reserved[0]}' is set by the service and can't be overridden")
    variables |= json.loads(own or "{}") | given
    return json_text(variables) if variables else None
