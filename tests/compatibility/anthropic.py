"""Anthropic's Messages."""

from api.dialects.anthropic import Anthropic
from tests.compatibility.common import CACHED_TOKENS, USER
from tests.compatibility.rows import Answer, Interface, Request

_TOOL = {"name": "f", "description": "Does it.", "input_schema": {"type": "object"}}
_CACHED: dict[str, object] = {"cache_control": {"type": "ephemeral", "ttl": "1h", "scope": "global"}}


def _content(*blocks: dict[str, object]) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


_REQUESTS = (
    Request(
        fields="anthropic-version:",
        headers={"anthropic-version": "2023-06-01"},
        how="`2023-06-01` if missing; another form than YYYY-MM-DD gets 400. All versions are equivalent.",
    ),
    Request(
        fields="anthropic-beta:",
        headers={"anthropic-beta": "context-1m-2025-08-07"},
        how="Accepted without effect: the fields of a feature determine whether it is served or refused.",
    ),
    Request(fields="model", how="A name that a worker serves, else 404."),
    Request(
        fields="max_tokens",
        how="Required. Lowered to the room in the context; the output then ends with `model_context_window_exceeded`.",
    ),
    Request(
        fields="max_tokens",
        when="0",
        body={"max_tokens": 0},
        how="Fills the prefix cache, and returns no content.",
    ),
    Request(
        fields="messages messages[].role messages[].content messages[].content[].type messages[].content[].text",
        body=_content({"type": "text", "text": "Hello"}),
        how="Roles `user`, `assistant` and `system`. The last message must be the user's: prefill is refused.",
    ),
    Request(
        fields="messages[].content[].source messages[].content[].source.type messages[].content[].source.media_type "
        "messages[].content[].source.data messages[].content[].source.url",
        when="image",
        body=_content(
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        ),
        how="By vision-language models; URLs with `--media-domains`. Images of a tool result follow it.",
    ),
    Request(
        fields="messages[].content[].source messages[].content[].source.type messages[].content[].source.file_id",
        when="file",
        body=_content({"type": "image", "source": {"type": "file", "file_id": "f"}}),
    ),
    Request(
        fields="messages[].content[].id messages[].content[].name messages[].content[].input "
        "messages[].content[].tool_use_id messages[].content[].content messages[].content[].is_error",
        when="tool_use, tool_result",
        body={
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1", "is_error": True}],
                },
            ]
        },
        how="The text `Error:` precedes the result of a failed call.",
    ),
    Request(
        fields="messages[].content[].thinking messages[].content[].signature messages[].content[].data",
        when="thinking, redacted_thinking",
        body={
            "messages": [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": ""},
                        {"type": "redacted_thinking", "data": "x"},
                    ],
                },
                USER,
            ]
        },
        how="The chat template gets the reasoning. Redacted reasoning, which only Anthropic's models can read, is "
        "ignored. Signatures are not checked.",
    ),
    Request(
        fields="messages[].content[].source messages[].content[].source.type messages[].content[].source.media_type "
        "messages[].content[].source.data messages[].content[].source.content messages[].content[].title "
        "messages[].content[].context",
        when="document",
        body=_content(
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "Hello"},
                "title": "T",
                "context": "C",
            },
            {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "Hello"}]}},
        ),
        how="As text in `<document>`, after title and context. Also in tool results.",
    ),
    Request(
        fields="messages[].content[].source messages[].content[].source.type messages[].content[].source.media_type "
        "messages[].content[].source.data",
        when="PDF",
        body=_content(
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA=="}}
        ),
    ),
    Request(
        fields="messages[].content[].source messages[].content[].title messages[].content[].content",
        when="search_result",
        body=_content(
            {
                "type": "search_result",
                "source": "https://example.com",
                "title": "T",
                "content": [{"type": "text", "text": "Hello"}],
            }
        ),
        how="As text in `<search_result>`, after source and title. Also in tool results.",
    ),
    Request(
        fields="messages[].content[].citations messages[].content[].citations.enabled",
        body=_content(
            {
                "type": "search_result",
                "source": "",
                "title": "T",
                "content": [],
                "citations": {"enabled": True},
            }
        ),
    ),
    Request(
        fields="messages[].content[].type",
        when="container_upload and others",
        body=_content({"type": "container_upload", "file_id": "f"}),
    ),
    Request(
        fields="messages[].content[].cache_control cache_control",
        body=_content({"type": "text", "text": "Hello"} | _CACHED) | _CACHED,
        how="Accepted without effect: prompt prefixes are always cached. Also with the `scope` that Claude Code sends.",
    ),
    Request(
        fields="system",
        body={"system": "Be kind."},
        how="Text or text blocks. Claude Code's billing header is dropped, because it changes with every request.",
    ),
    Request(
        fields="temperature top_k top_p stop_sequences stream metadata metadata.user_id",
        body={
            "temperature": 0.5,
            "top_k": 5,
            "top_p": 0.5,
            "stop_sequences": ["a"],
            "stream": True,
            "metadata": {"user_id": "u"},
        },
        how="Up to 16 stop sequences.",
    ),
    Request(
        fields="service_tier",
        body={"service_tier": "standard_only"},
        how="`auto` selects the priority class of the API key, `standard_only` the priority class `default`.",
    ),
    Request(
        fields="thinking thinking.type thinking.budget_tokens",
        body={"thinking": {"type": "enabled", "budget_tokens": 2000}},
        how="Turns the reasoning of models on or off whose chat template has a switch. The budget has no effect: "
        "`max_tokens` limits reasoning and text together.",
    ),
    Request(
        fields="thinking.display",
        body={"thinking": {"type": "adaptive", "display": "omitted"}},
        how="`omitted`: the reasoning is only in the signature, for the next turn.",
    ),
    Request(
        fields="output_config output_config.effort output_config.format output_config.format.schema",
        body={"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}}},
        how="The chat template gets the effort. A grammar enforces the format.",
    ),
    Request(
        fields="output_format output_format.type output_format.schema",
        body={"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
        how="The name of `output_config.format` in SDKs of 2025.",
    ),
    Request(
        fields="tools tools[].name tools[].description tools[].input_schema tools[].strict tool_choice "
        "tool_choice.type tool_choice.disable_parallel_tool_use",
        body={
            "tools": [_TOOL | {"strict": True}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        },
        how="As `tools` under `/v1/chat/completions`.",
    ),
    Request(
        fields="tools[].type",
        when="Anthropic's own",
        body={"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    ),
    Request(
        fields="tools[].defer_loading messages[].content[].content[].tool_name",
        when="tool_reference",
        body={
            "tools": [_TOOL, _TOOL | {"name": "g", "defer_loading": True}],
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t",
                            "content": [{"type": "tool_reference", "tool_name": "g"}],
                        }
                    ],
                },
            ],
        },
        how="For tool search by the client: the prompt contains a deferred tool if a `tool_reference` in a tool result "
        "names it, after the other tools. The result has the text `<tool_reference>`.",
    ),
    Request(fields="tools[].input_examples", body={"tools": [_TOOL | {"input_examples": [{}]}]}),
    Request(
        fields="context_management",
        body={"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
    ),
    *(
        Request(fields=field, body={field: value})
        for field, value in (
            ("billing_policy", {"type": "billing_policy", "bill_to": "user_profile"}),
            ("compaction", {}),
            ("container", "c"),
            ("diagnostics", {}),
            ("fallback_credit_token", "t"),
            ("fallbacks", [{"model": "n"}]),
            ("inference_geo", "us"),
            ("mcp_servers", [{}]),
            ("speed", "fast"),
            ("thread", {"type": "create"}),
            ("user_profile_id", "u"),
            ("workspace_id", "w"),
        )
    ),
)

_ANSWERS = (
    Answer(
        fields="id type role model content content[].type content[].text message message.id message.type message.role "
        "message.model message.content index content_block content_block.type content_block.text delta delta.type "
        "delta.text",
        how="A message, or the events of a stream, with their names in `event:` lines.",
    ),
    Answer(
        fields="content[].thinking content[].signature content_block.thinking content_block.signature delta.thinking "
        "delta.signature",
        how="The text between the model's reasoning markers. Signatures have a value because clients expect one; "
        "they are not cryptographic.",
    ),
    Answer(
        fields="content[].id content[].name content[].input content[].input.a content_block.id content_block.name "
        "content_block.input delta.partial_json content[].caller content[].caller.type content_block.caller "
        "content_block.caller.type",
        how="Tool calls. If the length limit cuts off a call, its input is empty.",
    ),
    Answer(
        fields="stop_reason stop_sequence message.stop_reason message.stop_sequence delta.stop_reason "
        "delta.stop_sequence",
        how="`end_turn`, `max_tokens`, `stop_sequence`, `tool_use` or `model_context_window_exceeded`.",
    ),
    Answer(
        fields="usage usage.input_tokens usage.output_tokens usage.cache_read_input_tokens "
        "usage.output_tokens_details usage.output_tokens_details.thinking_tokens message.usage "
        "message.usage.input_tokens message.usage.output_tokens message.usage.cache_read_input_tokens "
        "message.usage.output_tokens_details message.usage.output_tokens_details.thinking_tokens",
        how=f"At the start of a stream, only of the prompt. {CACHED_TOKENS}",
    ),
    Answer(
        fields=" ".join(
            f"{usage}.{field}"
            for usage in ("usage", "message.usage")
            for field in (
                "cache_creation_input_tokens",
                "cache_creation",
                "cache_creation.ephemeral_5m_input_tokens",
                "cache_creation.ephemeral_1h_input_tokens",
                "service_tier",
                "speed",
            )
        ),
        how="Caching is free. There is one tier and one speed.",
    ),
    Answer(
        fields="content[].citations content_block.citations",
        how="Citations are not available.",
    ),
    Answer(
        fields="content[].toolset_name content_block.toolset_name container stop_details diagnostics "
        "message.container message.stop_details message.diagnostics delta.container delta.stop_details "
        "usage.server_tool_use usage.inference_geo message.usage.server_tool_use "
        "message.usage.inference_geo",
        how="They belong to features that are not served.",
    ),
    Answer(
        fields="error error.type error.message request_id",
        how="The message starts with the path of the field. A prompt that is too long is reported in the reference's "
        "words, which clients recognise.",
    ),
    Answer(
        fields="error.details error.details.error_code",
        how="`thread_unsupported_request` for a `thread`; the SDK's tool runner then continues without one.",
    ),
)

ANTHROPIC = Interface(
    title="Anthropic Messages",
    route="POST /v1/messages",
    about="The API key is in `x-api-key` or `Authorization: Bearer`.",
    dialect=lambda query, headers: Anthropic(headers),
    plain={"model": "m", "max_tokens": 5, "messages": [USER]},
    requests=_REQUESTS,
    answers=_ANSWERS,
)
