"""Response encoder of Anthropic's Messages: messages, and streams of named events."""

from collections.abc import Sequence

import msgspec

from api.dialects.anthropic.errors import error_object
from api.dialects.base.encoded_reasoning import encode_reasoning
from api.dialects.base.interface import Choice, ResponseEncoder, TokenLogprob, Usage
from shared.protocol.errors import Problem
from shared.protocol.events import FinishReason
from shared.protocol.request import ChatRequest

_STOP_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "cut": "max_tokens",
    "tool_calls": "tool_use",
}

_CONSTANT_USAGE: dict[str, object] = {
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "inference_geo": None,
    "service_tier": "standard",
    "speed": "standard",
}
"""The parts of a message's usage that do not depend on the request."""

_encode = msgspec.json.Encoder().encode


class MessagesResponseEncoder(ResponseEncoder):
    """An :class:`api.dialects.base.interface.ResponseEncoder` for one Messages request, which has one choice.

    Reasoning, text and each tool call are content blocks. A block is open until another one begins. All fields of the
    reference are present, and null where they do not apply.
    """

    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    done = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'

    def __init__(self, request: ChatRequest, *, response_id: str, request_id: str = "") -> None:
        """``request_id`` is the id of the HTTP exchange, which errors contain."""
        self._request = request
        self._id = f"msg_{response_id}"
        self._request_id = request_id
        self._block = ""
        """Type of the open content block; empty before the first one."""
        self._index = -1
        self._text_head = b""
        self._hidden = request.response.hidden
        self._reasoning: list[str] = []
        """Reasoning of the open block that is not shown."""
        self._reason: FinishReason = "stop"
        self._stop = ""

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        """Encode the start of the message, and a ping as the reference has it."""
        usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=0, cached_tokens=cached_tokens)
        message = self._message([], usage, _ending(None))
        return _event("message_start", {"message": message}) + self.ping

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a text delta. Hot path: once per token."""
        if self._hidden == "all":
            return b""
        opened = b"" if self._block == "text" else self._open(_text(""))
        return opened + self._text_head + _encode(text) + b"}}\n\n"

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        if self._hidden == "all":
            return b""
        opened = b""
        if self._block != "thinking":
            opened = self._open(_thinking("", ""))
        if self._hidden == "reasoning":
            self._reasoning.append(text)
            return opened
        return opened + self._delta({"type": "thinking_delta", "thinking": text, "estimated_tokens": None})

    def call(self, choice: int, index: int, call_id: str, name: str) -> bytes:
        """Encode the start of a tool call, with the empty delta that the reference has first."""
        if self._hidden == "all":
            return b""
        return self._open(_tool_use(call_id, name, {})) + self.arguments(choice, index, "")

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        if self._hidden == "all":
            return b""
        return self._delta({"type": "input_json_delta", "partial_json": text})

    def closing(self, choice: int, reason: FinishReason, stop: str = "") -> bytes:
        """Encode the end of the last block. The reason follows with the usage."""
        self._reason, self._stop = reason, stop
        return self._close()

    def usage(self, usage: Usage) -> bytes:
        """Encode the end of the message: stop reason and token counts."""
        ending = self._ending(self._reason, self._stop, usage)
        return _event("message_delta", {"delta": ending, "usage": self._usage(usage), "context_management": None})

    def failure(self, problem: Problem) -> bytes:
        """Encode an error event, which ends the stream."""
        return b"event: error\ndata: " + _encode(error_object(problem, self._request_id)) + b"\n\n"

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        (choice,) = choices
        ending = self._ending(choice.reason, choice.stop, usage)
        return _encode(self._message(self._blocks(choice), usage, ending))

    def _message(self, content: list[dict[str, object]], usage: Usage, ending: dict[str, object]) -> dict[str, object]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
            "content": content,
            **ending,
            "context_management": None,
            "diagnostics": None,
            "usage": self._usage(usage) | _CONSTANT_USAGE,
        }

    def _ending(self, reason: FinishReason, stop: str, usage: Usage) -> dict[str, object]:
        wanted = self._request.sampling.max_tokens
        if self._hidden == "all":
            return _ending("max_tokens")
        if reason == "length" and wanted is not None and usage.completion_tokens < wanted:
            return _ending("model_context_window_exceeded")
        return _ending(_stop_reason(reason, stop), stop)

    def _usage(self, usage: Usage) -> dict[str, object]:
        output, reasoning = (0, 0) if self._hidden == "all" else (usage.completion_tokens, usage.reasoning_tokens)
        return {
            "input_tokens": usage.prompt_tokens - usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": output,
            "output_tokens_details": {"thinking_tokens": reasoning},
            "server_tool_use": None,
            "fallback_credit": None,
            "iterations": None,
        }

    def _blocks(self, choice: Choice) -> list[dict[str, object]]:
        blocks: list[dict[str, object]] = []
        if self._hidden == "all":
            return blocks
        if choice.reasoning and self._hidden == "reasoning":
            blocks.append(_thinking("", encode_reasoning(choice.reasoning)))
        elif choice.reasoning:
            blocks.append(_thinking(choice.reasoning, self._id))
        if choice.text:
            blocks.append(_text(choice.text))
        blocks += (_tool_use(call.id, call.name, _input(call.arguments)) for call in choice.calls)
        return blocks

    def _open(self, block: dict[str, object]) -> bytes:
        closed = self._close()
        self._index += 1
        self._block = str(block["type"])
        if self._block == "text":
            self._text_head = (
                b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
                b'"delta":{"type":"text_delta","text":' % self._index
            )
        return closed + _event("content_block_start", {"index": self._index, "content_block": block})

    def _delta(self, delta: dict[str, str | None]) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": delta})

    def _close(self) -> bytes:
        if not self._block:
            return b""
        # The reference's signatures prove who has made the reasoning. Some clients send only signed reasoning back.
        signed = b""
        if self._block == "thinking":
            signature = encode_reasoning("".join(self._reasoning)) if self._hidden == "reasoning" else self._id
            signed = self._delta({"type": "signature_delta", "signature": signature})
        self._block, self._reasoning = "", []
        return signed + _event("content_block_stop", {"index": self._index})


def _event(kind: str, fields: dict[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind} | fields))


def _text(text: str) -> dict[str, object]:
    # The reference's schema requires ``citations``; the AI SDK accepts a list, but not null.
    return {"type": "text", "text": text, "citations": []}


def _thinking(text: str, signature: str) -> dict[str, object]:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _tool_use(call_id: str, name: str, arguments: object) -> dict[str, object]:
    caller = {"type": "direct"}
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments, "caller": caller, "toolset_name": None}


def _ending(reason: str | None, stop: str = "") -> dict[str, object]:
    return {"stop_reason": reason, "stop_sequence": stop or None, "stop_details": None, "container": None}


def _input(arguments: str) -> object:
    """Return a call's arguments as an object; empty if the length limit has cut them off."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _stop_reason(reason: FinishReason, stop: str) -> str:
    return "stop_sequence" if stop and reason == "stop" else _STOP_REASONS[reason]
