"""Parser of the bodies of ``POST /v1/responses``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from pydantic import TypeAdapter

from api.dialects.base.body import decode_object, json_text
from api.dialects.base.custom_tools import custom_tool, name_of_two_kinds
from api.dialects.base.interface import MessagesMissing
from api.dialects.base.sampling import sampling
from api.dialects.base.schemas import check_parameters, json_constraint
from api.dialects.base.unsupported import check_supported, note, unsupported
from api.dialects.base.validation import check_names, unknown_parameter, validate
from api.dialects.openai.parse import DEFAULTS, template_variables, tier_of
from api.dialects.openai.rules import check_logit_bias
from api.dialects.openai.schema import JsonObjectResponse
from api.dialects.responses.conversation import Placed, translate_items
from api.dialects.responses.echoed_fields import echoed_fields
from api.dialects.responses.items import Item, ItemReference
from api.dialects.responses.offered_tools import OfferedFunction, functions, skipped_types
from api.dialects.responses.schema import JsonSchemaFormat, PromptFields, ResponsesRequest
from api.dialects.responses.tools import (
    AllowedFunctions,
    ChosenTool,
    CustomDefinition,
    GrammarFormat,
)
from shared.protocol import request as internal
from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest, Constraint, Notes, ResponseForm

SKIPPED_TOOLS = "x-skipped-tools"
"""Names the types of the tools that a request offers and the model does not get, because nobody here can run them."""
_SHOWN = 64
"""Maximum length of a field's name in an error."""

_MOVED = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
}
"""Fields of chat completions, and what they are called here."""

_Body = TypeVar("_Body", bound=ResponsesRequest)

_items_adapter = TypeAdapter[list[Item]](list[Item])


class StoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """Stored items that a request continues or refers to, as JSON objects."""

    earlier: tuple[Mapping[str, Any], ...] = ()
    """The input and output of all previous responses, in order."""
    referenced: Mapping[str, Mapping[str, Any]] = {}
    """The items that the input refers to, by their ids."""
    size: int = 0
    """Number of bytes of JSON that were read."""


@dataclass(frozen=True, slots=True)
class ValidatedRequest(Generic[_Body]):
    """A validated body. It becomes a request once the stored items that it needs are known."""

    body: _Body
    _sent: Mapping[str, Any]
    _notes: Notes

    @property
    def previous(self) -> str | None:
        """The id of the response that the request continues."""
        return self.body.previous_response_id

    @property
    def references(self) -> tuple[str, ...]:
        """The ids of the items that the input refers to. Raises :class:`RequestRefused` for one that is there twice:
        each takes the memory of the item itself."""
        found: dict[str, None] = {}
        for _, item in _placed(self.body.input):
            if isinstance(item, ItemReference):
                if item.id in found:
                    message = (
                        f"Duplicate item found with id {item.id[:80]}. Remove duplicate items from your input and try "
                        "again."
                    )
                    raise refuse(ProblemKind.INVALID, message, param="input")
                found[item.id] = None
        return tuple(found)

    @property
    def store(self) -> bool | None:
        """Whether the client wants the response to be stored; None if it does not say."""
        return self.body.store

    def input_items(self, conversation: StoredConversation) -> list[Mapping[str, Any]]:
        """Return the request's own input as items, with references replaced."""
        sent = self._sent["input"]
        if isinstance(sent, str):
            return [{"role": "user", "content": [{"type": "input_text", "text": sent}]}]
        return [
            _referenced(index, item.id, conversation) if isinstance(item, ItemReference) else raw
            for index, (item, raw) in enumerate(zip(self.body.input, sent, strict=True))
        ]

    def request(self, conversation: StoredConversation, *, store: bool) -> ChatRequest:
        """Return the internal form. Raises :class:`RequestRefused` for a broken rule, and for an unknown reference."""
        request = self.body
        own = _placed(_items(self.input_items(conversation)))
        tools = tuple(functions(request.tools or (), own))
        _check_names(tools)
        mode, named, allowed = _choice(request, tools)
        effort = request.reasoning.effort if request.reasoning else None
        return ChatRequest(
            model=request.model,
            messages=translate_items(
                request.instructions,
                [*(("previous_response_id", item) for item in _items(conversation.earlier)), *own],
                answered=request.answered_calls,
            ),
            sampling=sampling(request),
            defaults=DEFAULTS,
            tools=tuple(_tool(tool) for tool in tools if allowed is None or tool.name in allowed),
            tool_choice=mode,
            named_tool=named,
            parallel_tool_calls=request.parallel_tool_calls is not False,
            max_tool_calls=request.max_tool_calls,
            constraint=_constraint(request),
            template_kwargs=template_variables(effort, request.text.verbosity if request.text else None),
            tier=tier_of(request.service_tier),
            store=store,
            truncate=request.truncation == "auto",
            response=ResponseForm(
                stream=bool(request.stream),
                background=bool(request.background),
                metadata=tuple((request.metadata or {}).items()),
                notes=self._notes,
                echoed=json_text(echoed_fields(request, self._sent)),
            ),
        )


def validated_response(body: bytes) -> ValidatedRequest[ResponsesRequest]:
    """Validate a body. Raises :class:`RequestRefused` and no other exception."""
    return validated(ResponsesRequest, decode_object(body))


def validated(model: type[_Body], value: Mapping[str, Any]) -> ValidatedRequest[_Body]:
    """Validate the object in a body. Raises :class:`RequestRefused` and no other exception."""
    try:
        request = validate(model, value, unknown=unknown_fields)
    except RequestRefused as refusal:
        if refusal.problem.param == "input" and "input" not in value:
            raise MessagesMissing(refusal.problem, model=value["model"]) from None
        raise
    notes = check_supported(request)
    check_logit_bias(request.logit_bias)
    if request.background and request.store is False:
        raise refuse(
            ProblemKind.INVALID, "Background responses are stored: 'store' can't be false.", param="background"
        )
    skipped = skipped_types(request.tools or (), _placed(request.input))
    return ValidatedRequest(request, value, (*notes, *note(SKIPPED_TOOLS, skipped)))


def unknown_fields(names: Sequence[str]) -> RequestRefused:
    """Return the refusal of fields that requests do not have, with the ones that have replaced those of chats."""
    name = names[0][:_SHOWN]
    if name not in _MOVED:
        return unknown_parameter(name)
    message = f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{_MOVED[name]}'."
    return refuse(ProblemKind.INVALID, message, param=name, code="unsupported_parameter")


def with_input(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a body with an empty ``input`` if it has none, but a previous response."""
    given = value.get("input") is not None or value.get("previous_response_id") is None
    return value if given else {**value, "input": []}


def previous_not_found(response_id: str) -> RequestRefused:
    """Return the refusal of a request that continues an unknown response."""
    message = f"Previous response with id '{response_id[:80]}' not found."
    return refuse(ProblemKind.INVALID, message, param="previous_response_id", code="previous_response_not_found")


def _items(objects: Iterable[Mapping[str, Any]]) -> Sequence[Item]:
    """Return items, which are valid: they were validated when they came, or are output."""
    return _items_adapter.validate_python(list(objects), strict=True)


def _placed(items: str | Sequence[Item]) -> list[Placed]:
    return [] if isinstance(items, str) else [(f"input[{index}]", item) for index, item in enumerate(items)]


def _referenced(index: int, item_id: str, conversation: StoredConversation) -> Mapping[str, Any]:
    found = conversation.referenced.get(item_id)
    if found is None:
        message = (
            f"Item with id '{item_id[:80]}' not found. Items are not persisted when `store` is set to false. Try again "
            "with `store` set to true, or remove this item from your input."
        )
        raise refuse(ProblemKind.NOT_FOUND, message, param=f"input[{index}].id")
    return found


def _check_names(tools: Iterable[OfferedFunction]) -> None:
    """Raise :class:`RequestRefused` if a function of one namespace would have the name of another one's, or of a custom
    tool."""
    namespaces: dict[str, str | None] = {}
    kinds: dict[str, str] = {}
    for tool in tools:
        if kinds.setdefault(tool.name, tool.definition.type) != tool.definition.type:
            raise name_of_two_kinds(tool.name, f"{tool.path}.name")
        if namespaces.setdefault(tool.name, tool.namespace) != tool.namespace:
            message = f"Functions in different namespaces can't both be called '{tool.name[:_SHOWN]}' by the model."
            raise refuse(ProblemKind.INVALID, message, param=f"{tool.path}.name")


def _tool(tool: OfferedFunction) -> internal.Tool:
    if isinstance(tool.definition, CustomDefinition):
        form = tool.definition.format if isinstance(tool.definition.format, GrammarFormat) else None
        return custom_tool(
            tool.name,
            tool.description,
            grammar=None if form is None else (form.syntax, form.definition),
            param=f"{tool.path}.format.definition",
            namespace=tool.namespace,
        )
    parameters, strict = tool.definition.parameters, bool(tool.definition.strict)
    check_parameters(tool.definition.name, parameters, f"{tool.path}.parameters")
    return internal.Tool(
        name=tool.name,
        description=tool.description,
        parameters=None if parameters is None else json_text(parameters),
        strict=strict,
        namespace=tool.namespace,
    )


def _choice(
    request: ResponsesRequest, tools: Sequence[OfferedFunction]
) -> tuple[internal.ToolChoice, str | None, frozenset[str] | None]:
    """Return the mode, the function that must be called, and the names of the allowed functions (None: all)."""
    kinds = {tool.name: tool.definition.type for tool in tools}
    match request.tool_choice:
        case None:
            return "auto", None, None
        case ChosenTool(type=kind, name=name):
            if kinds.get(name) != kind:
                raise _not_found(kind, name)
            return "required", name, None
        case AllowedFunctions(mode=mode, tools=chosen):
            allowed = frozenset(tool["name"] for tool in chosen if isinstance(tool.get("name"), str))
            for tool in chosen:
                called = str(tool.get("name"))
                if tool.get("type") in ("function", "custom") and kinds.get(called) != tool["type"]:
                    raise _not_found(tool["type"], called)
            if mode == "required" and not allowed & kinds.keys():
                raise _unknown_choice("None of the allowed tools is a function in 'tools' parameter.")
            return mode, None, allowed
        case "required" if not tools:
            raise _unknown_choice("Tool choice 'required' must be specified with a function in 'tools' parameter.")
        case mode:
            return mode, None, None


def _not_found(kind: str, name: str) -> RequestRefused:
    return _unknown_choice(f"Tool choice '{kind}' with name '{name[:64]}' not found in 'tools' parameter.")


def _unknown_choice(message: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, message, param="tool_choice")


def _constraint(request: ResponsesRequest) -> Constraint | None:
    form = request.text.format if request.text else None
    match form:
        case JsonSchemaFormat(schema_=schema):
            return json_constraint(schema, "text.format.schema")
        case JsonObjectResponse(schema_=schema):
            return json_constraint(schema, "text.format")
        case _:
            return None


class InputTokensRequest(PromptFields):
    """The body of ``POST /v1/responses/input_tokens``."""

    personality: str | None = None


class _Counted(ResponsesRequest):
    answered_calls: ClassVar[bool] = False


def validated_input_tokens(body: bytes) -> ValidatedRequest[ResponsesRequest]:
    """Validate a body and return the validated request for a response.

    Raises :class:`RequestRefused` and no other exception.
    """
    value = decode_object(body)
    check_names(InputTokensRequest, value, unknown=unknown_fields)
    if value.pop("personality", None) is not None:
        raise unsupported("personality", "Models have no style presets; use instructions.")
    return validated(_Counted, with_input(value))


def render_input_tokens(count: int) -> bytes:
    return msgspec.json.encode({"object": "response.input_tokens", "input_tokens": count})
