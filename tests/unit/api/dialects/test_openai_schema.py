"""The request models against the official SDK's request types: the same keys, the same ones required."""

from typing import Any, Required, get_args, get_origin, get_type_hints

import openai.types.chat as sdk
import pytest
from openai.types.chat import chat_completion_assistant_message_param as sdk_assistant
from openai.types.chat import chat_completion_custom_tool_param as sdk_custom
from openai.types.chat import completion_create_params as sdk_request
from openai.types.chat.chat_completion_content_part_image_param import ImageURL as SdkImageURL
from openai.types.chat.chat_completion_content_part_param import File as SdkFile
from openai.types.shared_params import (
    FunctionDefinition,
    ResponseFormatJSONObject,
    ResponseFormatJSONSchema,
    ResponseFormatText,
)
from openai.types.shared_params.response_format_json_schema import JSONSchema
from pydantic import BaseModel, TypeAdapter

from api.dialects.base.unsupported import marked_fields, supported_fields
from api.dialects.openai import content, messages, schema, tools
from api.dialects.openai.content import PARTS_BY_ROLE

PAIRS: list[tuple[type[BaseModel], Any]] = [
    (schema.ChatCompletionRequest, sdk_request.CompletionCreateParamsNonStreaming),
    (schema.StreamOptions, sdk.ChatCompletionStreamOptionsParam),
    (schema.Prediction, sdk.ChatCompletionPredictionContentParam),
    (schema.TextResponse, ResponseFormatText),
    (schema.JsonObjectResponse, ResponseFormatJSONObject),
    (schema.JsonSchemaResponse, ResponseFormatJSONSchema),
    (schema.JsonSchema, JSONSchema),
    (messages.SystemMessage, sdk.ChatCompletionSystemMessageParam),
    (messages.DeveloperMessage, sdk.ChatCompletionDeveloperMessageParam),
    (messages.UserMessage, sdk.ChatCompletionUserMessageParam),
    (messages.AssistantMessage, sdk.ChatCompletionAssistantMessageParam),
    (messages.ToolMessage, sdk.ChatCompletionToolMessageParam),
    (messages.FunctionMessage, sdk.ChatCompletionFunctionMessageParam),
    (messages.CalledFunction, sdk_assistant.FunctionCall),
    (messages.FunctionToolCall, sdk.ChatCompletionMessageFunctionToolCallParam),
    (messages.CustomToolCall, sdk.ChatCompletionMessageCustomToolCallParam),
    (content.TextPart, sdk.ChatCompletionContentPartTextParam),
    (content.RefusalPart, sdk.ChatCompletionContentPartRefusalParam),
    (content.ImagePart, sdk.ChatCompletionContentPartImageParam),
    (content.ImageURL, SdkImageURL),
    (content.AudioInputPart, sdk.ChatCompletionContentPartInputAudioParam),
    (content.FilePart, SdkFile),
    (tools.Function, sdk_request.Function),
    (tools.StrictFunction, FunctionDefinition),
    (tools.FunctionTool, sdk.ChatCompletionFunctionToolParam),
    (tools.CustomTool, sdk.ChatCompletionCustomToolParam),
    (tools.Custom, sdk_custom.Custom),
    (tools.TextInput, sdk_custom.CustomFormatText),
    (tools.GrammarInput, sdk_custom.CustomFormatGrammar),
    (tools.Grammar, sdk_custom.CustomFormatGrammarGrammar),
    (tools.FunctionChoice, sdk.ChatCompletionNamedToolChoiceParam),
    (tools.CustomChoice, sdk.ChatCompletionNamedToolChoiceCustomParam),
    (tools.AllowedToolsChoice, sdk.ChatCompletionAllowedToolChoiceParam),
    (tools.AllowedTools, sdk.ChatCompletionAllowedToolsParam),
]


ADDED: dict[type[BaseModel], set[str]] = {
    messages.AssistantMessage: {"annotations", "reasoning", "reasoning_content"},
    schema.StreamOptions: {"continuous_usage_stats"},
    messages.ToolMessage: {"name"},
    schema.JsonObjectResponse: {"schema"},
    **{key: {"cache_control"} for key in (tools.Function, tools.StrictFunction, tools.FunctionTool, tools.CustomTool)},
}
"""What clients send back because our answers have it, and what other servers have."""
UNNEEDED: dict[type[BaseModel], set[str]] = {schema.JsonSchema: {"name"}}
"""What the reference requires, and has no effect."""


@pytest.mark.parametrize(("model", "params"), PAIRS, ids=lambda value: value.__name__)
def test_keys_and_choices_are_those_of_the_sdk(model: type[BaseModel], params: Any) -> None:
    hints = get_type_hints(params, include_extras=True)
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    assert fields.keys() == hints.keys() | ADDED.get(model, set())
    required = {name for name, hint in hints.items() if get_origin(hint) is Required}
    assert {name for name, field in fields.items() if field.is_required()} == required - UNNEEDED.get(model, set())
    published = model.model_json_schema()["properties"]
    for name, hint in get_type_hints(params).items():
        choices = {value for value in _literals(hint) if isinstance(value, str)}
        # Unions with free text or objects (model, voice, tool_choice) are open, so only closed ones are compared.
        if choices and not _is_open(hint):
            assert set(_enum(published[name])) == choices, name


def test_each_type_of_part_is_given_to_the_roles_that_the_sdk_gives_it() -> None:
    params = {
        "system": sdk.ChatCompletionSystemMessageParam,
        "developer": sdk.ChatCompletionDeveloperMessageParam,
        "user": sdk.ChatCompletionUserMessageParam,
        "assistant": sdk.ChatCompletionAssistantMessageParam,
        "tool": sdk.ChatCompletionToolMessageParam,
    }
    known: dict[str, set[str]] = {}
    for role, param in params.items():
        definitions = TypeAdapter(param).json_schema()["$defs"]
        known[role] = {
            definition["properties"]["type"]["const"]
            for name, definition in definitions.items()
            if name.startswith("ChatCompletionContentPart") or name == "File"
        }
    assert {role: set(parts) for role, parts in PARTS_BY_ROLE.items()} == known


def test_each_field_is_supported_or_marked() -> None:
    refused = {"audio", "modalities", "moderation", "prompt_cache_options", "web_search_options"}
    fields = schema.ChatCompletionRequest.model_fields.keys()
    assert supported_fields(schema.ChatCompletionRequest) == fields - refused
    only = {"prompt_cache_retention", "service_tier"}
    assert marked_fields(schema.ChatCompletionRequest).keys() == refused | only


def _literals(hint: Any) -> list[Any]:
    inner = get_args(hint)
    if str(get_origin(hint)).endswith("Literal"):
        return list(inner)
    return [value for argument in inner for value in _literals(argument)]


def _is_open(hint: Any) -> bool:
    inner = [argument for argument in get_args(hint) if argument is not type(None)]
    return any(argument is str or hasattr(argument, "__annotations__") for argument in inner)


def _enum(published: dict[str, Any]) -> list[str]:
    if "const" in published:
        return [published["const"]]
    found = list(published.get("enum", ()))
    for branch in published.get("anyOf", []) + ([published["items"]] if "items" in published else []):
        found += _enum(branch)
    return found
