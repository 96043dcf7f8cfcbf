"""Response encoder of Anthropic's Messages: messages, and streams of named events."""

from collections.abc import Sequence

import msgspec

from api.dialects.anthropic.errors import error_object
from api.dialects.interface import Choice, TokenLogprob, Usage
from shared.protocol.errors import Problem
from shared.protocol.events import FinishReason, PromptLogprobs
from shared.protocol.request import ChatRequest

_STOP_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    # Requests are cancelled only when the client has disconnected. The value keeps the document valid.
    "cancelled": "end_turn",
}

_encode = msgspec.json.Encoder().encode


class MessagesResponseEncoder:
    """An :class:`api.dialects.interface.ResponseEncoder` for one Messages request, which has one choice.

    Reasoning, text and each tool call are content blocks. A block is open until another one begins.
    """

    done = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'

    def __init__(self, request: ChatRequest, *, answer_id: str) -> None:
        self._request = request
        self._id = f"msg_{answer_id}"
        self._block = ""
        """Type of the open content block; empty before the first one."""
        self._index = -1
        self._text_head = b""
        self._ending: dict[str, object] = {}

    def opening(self, choice: int, prompt_tokens: int = 0) -> bytes:
        """Encode the start of the message, and a ping as the reference has it."""
        message = self._message([], _usage(Usage(prompt_tokens=prompt_tokens, completion_tokens=0)), None, None)
        return _event("message_start", {"message": message}) + _event("ping", {})

    def prompt(self, choice: int, prompt: PromptLogprobs) -> bytes:
        """Encode nothing: requests can't ask for log probabilities."""
        return b""

    def token_ids(self, choice: int, tokens: Sequence[int], prompt: Sequence[int] = ()) -> bytes:
        """Encode nothing: requests can't ask for token ids."""
        return b""

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a text delta. Hot path: once per token."""
        opened = b"" if self._block == "text" else self._open({"type": "text", "text": ""})
        return opened + self._text_head + _encode(text) + b"}}\n\n"

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a reasoning delta."""
        opened = b""
        if self._block != "thinking":
            opened = self._open({"type": "thinking", "thinking": "", "signature": ""})
        return opened + self._delta({"type": "thinking_delta", "thinking": text})

    def call(self, choice: int, index: int, call_id: str, name: str) -> bytes:
        """Encode the start of a tool call."""
        return self._open({"type": "tool_use", "id": call_id, "name": name, "input": {}})

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        """Encode a delta of the JSON text of a call's arguments."""
        return self._delta({"type": "input_json_delta", "partial_json": text})

    def closing(self, choice: int, reason: FinishReason, stop: str = "") -> bytes:
        """Encode the end of the last block. The reason follows with the usage."""
        self._ending = {"stop_reason": _stop_reason(reason, stop), "stop_sequence": stop or None}
        return self._close()

    def usage(self, usage: Usage) -> bytes:
        """Encode the end of the message: stop reason and token counts."""
        return _event("message_delta", {"delta": self._ending, "usage": _usage(usage)})

    def failure(self, problem: Problem) -> bytes:
        """Encode an error event, which ends the stream."""
        return b"event: error\ndata: " + _encode(error_object(problem)) + b"\n\n"

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """Encode the message."""
        (choice,) = choices
        reason = _stop_reason(choice.reason, choice.stop)
        return _encode(self._message(_blocks(choice), _usage(usage), reason, choice.stop or None))

    def _message(
        self, content: list[dict[str, object]], usage: dict[str, object], reason: str | None, stop: str | None
    ) -> dict[str, object]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": usage | {"service_tier": "standard"},
        }

    def _open(self, block: dict[str, str | dict[str, object]]) -> bytes:
        closed = self._close()
        self._index += 1
        self._block = str(block["type"])
        if self._block == "text":
            self._text_head = (
                b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
                b'"delta":{"type":"text_delta","text":' % self._index
            )
        return closed + _event("content_block_start", {"index": self._index, "content_block": block})

    def _delta(self, delta: dict[str, str]) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": delta})

    def _close(self) -> bytes:
        if not self._block:
            return b""
        self._block = ""
        return _event("content_block_stop", {"index": self._index})


def _event(kind: str, fields: dict[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind} | fields))


def _blocks(choice: Choice) -> list[dict[str, object]]:
    blocks: list[dict[str, object]] = []
    if choice.reasoning:
        blocks.append({"type": "thinking", "thinking": choice.reasoning, "signature": ""})
    if choice.text:
        blocks.append({"type": "text", "text": choice.text})
    blocks += (
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)} for call in choice.calls
    )
    return blocks


def _input(arguments: str) -> object:
    """Return a call's arguments as an object; empty if the length limit has cut them off."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _stop_reason(reason: FinishReason, stop: str) -> str:
    return "stop_sequence" if stop and reason == "stop" else _STOP_REASONS[reason]


def _usage(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }
