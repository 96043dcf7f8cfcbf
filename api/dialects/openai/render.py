"""From the internal event stream to ``chat.completion`` and ``chat.completion.chunk``.

``content`` is the hottest path of the API: it runs once a token for every stream. Everything constant in a chunk is
encoded once a choice, so that a chunk costs one JSON string encoding and one join of bytes.
"""

from collections.abc import Sequence

import msgspec

from api.dialects.interface import Choice, TokenLogprob, Usage
from api.dialects.openai.errors import error_object
from shared.protocol.errors import Problem
from shared.protocol.events import FinishReason
from shared.protocol.request import ChatRequest

_FINISH_REASON: dict[FinishReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    # Only a client that has gone cancels, so nobody reads this; the word keeps the document valid.
    "cancelled": "stop",
}

_encode = msgspec.json.Encoder().encode


class ChatResponseEncoder:
    """The answer to one chat request. See :class:`api.dialects.interface.ResponseEncoder` for the order of calls."""

    done = b"data: [DONE]\n\n"
    _annotated = True
    """Whether messages have ``annotations``, of which there are none without web search."""

    def __init__(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> None:
        self._identity = self._identify(request, answer_id=answer_id, created=created, fingerprint=fingerprint)
        self._include_usage = request.include_usage
        self._functions_form = request.functions_form
        # The reference: with include_usage, every chunk but the last has a usage field, which is null.
        self._event_tail = b"]%s}\n\n" % (b',"usage":null' if request.include_usage else b"")
        self._delta_tail = b'},"logprobs":null,"finish_reason":null}' + self._event_tail
        identity = _encode({"object": "chat.completion.chunk"} | self._identity)[:-1]
        self._event_head = b"data: " + identity + b',"choices":['
        self._heads: dict[int, bytes] = {}

    def _identify(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> dict[str, object]:
        """The fields that the whole answer and each of its chunks have in common, ``object`` apart."""
        identity: dict[str, object] = {
            "id": f"chatcmpl-{answer_id}",
            "created": created,
            "model": request.model,
            "system_fingerprint": fingerprint,
        }
        # The reference: told to those who name a tier, and to nobody else.
        if request.tier is not None:
            identity["service_tier"] = "default" if request.tier == "auto" else request.tier
        return identity

    def opening(self, choice: int) -> bytes:
        """The chunk that carries the role."""
        head = self._heads[choice] = self._event_head + b'{"index":%d,"delta":{"content":' % choice
        return head + b'"","role":"assistant","refusal":null' + self._delta_tail

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """A chunk with more text. Raises :class:`KeyError` for a choice that was not opened."""
        if logprobs:
            return self._chunk(choice, {"content": text}, logprobs)
        return self._heads[choice] + _encode(text) + self._delta_tail

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """A chunk with more reasoning, in the field that vLLM and llama.cpp have made usual."""
        return self._chunk(choice, {"reasoning_content": text}, logprobs)

    def call(self, choice: int, index: int, call_id: str, name: str) -> bytes:
        """The chunk that opens a tool call."""
        function = {"name": name, "arguments": ""}
        if self._functions_form:
            return self._chunk(choice, {"function_call": function})
        call = {"index": index, "id": call_id, "type": "function", "function": function}
        return self._chunk(choice, {"tool_calls": [call]})

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        """A chunk with more of a call's arguments."""
        if self._functions_form:
            return self._chunk(choice, {"function_call": {"arguments": text}})
        return self._chunk(choice, {"tool_calls": [{"index": index, "function": {"arguments": text}}]})

    def closing(self, choice: int, reason: FinishReason) -> bytes:
        """The chunk that carries the reason for the end of a choice."""
        word = self._word(reason).encode()
        end = b'{"index":%d,"delta":{},"logprobs":null,"finish_reason":"%s"}' % (choice, word)
        return self._event_head + end + self._event_tail

    def _chunk(self, choice: int, delta: dict[str, object], logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """A chunk that is not on the hot path."""
        body = {
            "index": choice,
            "delta": delta,
            "logprobs": logprobs_object(logprobs) if logprobs else None,
            "finish_reason": None,
        }
        return self._event_head + _encode(body) + self._event_tail

    def usage(self, usage: Usage) -> bytes:
        """The chunk without choices that carries the usage; empty unless the request asked for it."""
        if not self._include_usage:
            return b""
        return self._event_head + b'],"usage":' + _encode(self._usage_object(usage)) + b"}\n\n"

    def failure(self, problem: Problem) -> bytes:
        """An error event and the terminator: the SDKs raise the error when they meet it."""
        return b"data: " + _encode({"error": error_object(problem)}) + b"\n\n" + self.done

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The ``chat.completion`` object."""
        return _encode(
            {"object": "chat.completion"}
            | self._identity
            | {"choices": [self._choice_object(choice) for choice in choices], "usage": self._usage_object(usage)}
        )

    def _choice_object(self, choice: Choice) -> dict[str, object]:
        message: dict[str, object] = {
            "role": "assistant",
            "content": choice.text or (None if choice.calls else ""),
            "refusal": None,
        }
        if self._annotated:
            message["annotations"] = []
        if choice.reasoning:
            message["reasoning_content"] = choice.reasoning
        if choice.calls and self._functions_form:
            message["function_call"] = {"name": choice.calls[0].name, "arguments": choice.calls[0].arguments}
        elif choice.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in choice.calls
            ]
        return {
            "index": choice.index,
            "message": message,
            "logprobs": None if choice.logprobs is None else logprobs_object(choice.logprobs),
            "finish_reason": self._word(choice.reason),
        }

    def _usage_object(self, usage: Usage) -> dict[str, object]:
        return detailed_usage(usage)

    def _word(self, reason: FinishReason) -> str:
        return "function_call" if reason == "tool_calls" and self._functions_form else _FINISH_REASON[reason]


def logprobs_object(tokens: Sequence[TokenLogprob]) -> dict[str, object]:
    """The ``logprobs`` of a choice: each token that was chosen, with no alternatives."""
    return {
        "content": [
            {
                "token": token.piece.decode(errors="replace"),
                "logprob": token.logprob,
                "bytes": list(token.piece),
                "top_logprobs": [],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def plain_usage(usage: Usage) -> dict[str, object]:
    """The numbers of a usage that every interface has."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def detailed_usage(usage: Usage) -> dict[str, object]:
    """The usage with its details, which only OpenAI's reference has."""
    return plain_usage(usage) | {
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
