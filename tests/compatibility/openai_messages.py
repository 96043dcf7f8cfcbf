"""The messages of OpenAI's chat completions."""

from typing import Any

from tests.compatibility.common import CALL, IMAGES, USER
from tests.compatibility.rows import Request

BREAKPOINT = {"mode": "explicit", "ttl": "30m"}
_COPIED: dict[str, object] = {
    "type": "text",
    "text": "Hi.",
    "role": "assistant",
    "refusal": None,
    "annotations": [],
    "tool_calls": [],
}
_CUSTOM_CALL = {"id": "c", "type": "custom", "custom": {"name": "g", "input": "x"}}


def _parts(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(parts)}]}


MESSAGES = (
    Request(
        fields="messages messages[].role messages[].content messages[].name",
        body={"messages": [{"role": "developer", "content": "Be kind.", "name": "ann"}, USER]},
        how="All roles. `developer` becomes `system` if the chat template does not know it. "
        "System messages within a conversation become text of a turn if the chat template accepts none there. "
        "Special tokens in a text are tokenized as plain text.",
    ),
    Request(
        fields="messages[].content[].type messages[].content[].text",
        when="text",
        body=_parts({"type": "text", "text": "Hello"}),
        how="The parts are joined into one text.",
    ),
    Request(
        fields="messages[].content[].type messages[].content[].refusal messages[].refusal",
        when="refusal",
        body={
            "messages": [
                USER,
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
                {"role": "assistant", "refusal": "No."},
                USER,
            ]
        },
        how="Rendered as the assistant's text.",
    ),
    Request(
        fields="messages[].content[].type messages[].content[].image_url messages[].content[].image_url.url "
        "messages[].content[].image_url.detail",
        when="image_url",
        body=_parts({"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}}),
        how=IMAGES + " `low` limits the longest side to 512 pixels.",
    ),
    Request(
        fields="messages[].content[].type messages[].content[].input_audio messages[].content[].input_audio.data "
        "messages[].content[].input_audio.format",
        when="input_audio",
        body=_parts({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}),
    ),
    Request(
        fields="messages[].content[].type messages[].content[].file messages[].content[].file.file_data "
        "messages[].content[].file.file_id messages[].content[].file.filename",
        when="file",
        body=_parts({"type": "file", "file": {"file_data": "", "file_id": "f", "filename": "a.pdf"}}),
    ),
    Request(
        fields="messages[].content[].prompt_cache_breakpoint messages[].content[].prompt_cache_breakpoint.mode "
        "messages[].content[].prompt_cache_breakpoint.ttl",
        body=_parts({"type": "text", "text": "Hello", "prompt_cache_breakpoint": BREAKPOINT}),
    ),
    Request(
        fields="messages[].tool_calls messages[].tool_calls[].id messages[].tool_calls[].type "
        "messages[].tool_calls[].function messages[].tool_calls[].function.name "
        "messages[].tool_calls[].function.arguments messages[].tool_call_id",
        body={
            "messages": [
                USER,
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "1"},
            ]
        },
        how="Rendered by the chat template, or as text if it does not support tools.",
    ),
    Request(
        fields="messages[].tool_calls messages[].tool_calls[].type messages[].tool_calls[].custom "
        "messages[].tool_calls[].custom.name messages[].tool_calls[].custom.input",
        when="custom",
        body={
            "messages": [
                USER,
                {"role": "assistant", "tool_calls": [_CUSTOM_CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "1"},
            ]
        },
    ),
    Request(
        fields="messages[].function_call messages[].function_call.name messages[].function_call.arguments",
        body={
            "messages": [
                USER,
                {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "1"},
            ]
        },
        how="Converted to a tool call and its result.",
    ),
    Request(
        fields="messages[].audio messages[].audio.id",
        body={"messages": [USER, {"role": "assistant", "audio": {"id": "a"}}, USER]},
    ),
    Request(
        fields="messages[].annotations",
        body={"messages": [USER, {"role": "assistant", "content": "Hi.", "annotations": []}, USER]},
        how="Accepted and ignored: part of the reference's responses, which clients send back.",
    ),
    Request(
        fields="messages[].parsed messages[].tool_calls[].function.parsed_arguments messages[].tool_calls[].index",
        body={
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "parsed": None,
                    "tool_calls": [
                        {**CALL, "index": 0, "function": {"name": "f", "arguments": "{}", "parsed_arguments": {}}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "1"},
            ]
        },
        how="Not in the reference's schema. Accepted and ignored: its SDKs add them to answers that clients send back.",
    ),
    Request(
        fields="messages[].provider_specific_fields messages[].thinking_blocks",
        body={
            "messages": [
                USER,
                {"role": "assistant", "content": "Hi.", "provider_specific_fields": {}, "thinking_blocks": []},
                USER,
            ]
        },
        how="Not OpenAI's. Accepted and ignored: LiteLLM adds them to answers, and other fields say the same.",
    ),
    Request(
        fields="messages[].content[].annotations messages[].content[].refusal messages[].content[].role "
        "messages[].content[].tool_calls",
        when="text of the assistant",
        body={"messages": [USER, {"role": "assistant", "content": [_COPIED]}, USER]},
        how="Ignored: clients copy these fields of a response's message into its text.",
    ),
    Request(
        fields="messages[].name",
        when="tool",
        body={
            "messages": [
                USER,
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "name": "f", "content": "1"},
            ]
        },
        how="Not in the reference's schema. Accepted, and passed to the chat template.",
    ),
    Request(
        fields="messages[].reasoning_content",
        body={"messages": [USER, {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm."}, USER]},
        how="Not OpenAI's. Earlier reasoning is passed to the chat template.",
    ),
)
