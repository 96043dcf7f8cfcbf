"""Response encoder for ``chat.completion`` and ``chat.completion.chunk``.

``content`` is the hot path of the API: it runs once per token and stream. The constant parts of a chunk are encoded
once per choice, so that a chunk costs one JSON string encoding and one join of bytes.
"""

import secrets
from collections.abc import Sequence

import msgspec

from api.dialects.base.interface import Call, Choice, ResponseEncoder, TokenLogprob, Usage
from api.dialects.base.problems import error_object
from api.dialects.openai.logprobs import chat_logprobs, vllm_form
from shared.protocol.errors import Problem
from shared.protocol.events import FinishReason
from shared.protocol.request import ChatRequest

OBFUSCATED_BLOCK = 64
"""Obfuscated chunks are padded to a multiple of this many bytes, so that most have the same size."""

_DELTA_END = b'},"logprobs":null,"finish_reason":null}'
_CHUNK_END = b"}\n\n"

_encode = msgspec.json.Encoder().encode


class ChunkEncoder(ResponseEncoder):
    """What the encoders of chat completions and of completions share."""

    done = b"data: [DONE]\n\n"
    _kind: str
    _chunk_kind: str
    _id_prefix: str
    _fingerprinted = True
    """Whether responses have ``system_fingerprint``."""
    _detailed = True
    """Whether responses have what only OpenAI's reference has: details of the usage, annotations, the service tier."""

    def __init__(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> None:
        self._request = request
        self._identity: dict[str, object] = {
            "id": self._id_prefix + response_id,
            "created": created,
            "model": request.model,
        }
        if self._fingerprinted:
            self._identity["system_fingerprint"] = fingerprint
        # By the reference, chats have it if the request names a tier.
        if request.tier is not None and self._detailed and not request.prompts:
            self._identity["service_tier"] = "default" if request.tier in ("auto", "batch") else request.tier
        head = _encode({"object": self._chunk_kind} | self._identity)[:-1]
        self._event_head = b"data: " + head + b',"choices":['
        # By the reference, with include_usage every chunk except the last has a usage field that is null.
        self._event_tail = b"]%s}\n\n" % (b',"usage":null' if request.response.include_usage else b"")

    def count(self, usage: Usage) -> None:
        if self._request.response.include_usage:
            self._event_tail = b'],"usage":' + _encode(self._usage_object(usage)) + b"}\n\n"

    def usage(self, usage: Usage) -> bytes:
        """Encode the usage chunk, which has no choices; empty unless the request asks for it."""
        if not self._request.response.include_usage:
            return b""
        return self._event_head + b'],"usage":' + _encode(self._usage_object(usage)) + b"}\n\n"

    def failure(self, problem: Problem) -> bytes:
        """Encode an error event, which the SDKs raise as an exception, and the terminator."""
        return b"data: " + _encode({"error": error_object(problem)}) + b"\n\n" + self.done

    def _usage_object(self, usage: Usage) -> dict[str, object]:
        counts: dict[str, object] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        if self._detailed:
            counts["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens, "audio_tokens": 0}
            counts["completion_tokens_details"] = {
                "reasoning_tokens": usage.reasoning_tokens,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            }
        return counts


class ChatResponseEncoder(ChunkEncoder):
    _kind, _chunk_kind, _id_prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-"

    def __init__(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> None:
        super().__init__(request, response_id=response_id, created=created, fingerprint=fingerprint)
        self._heads: dict[int, bytes] = {}
        self._custom_names = {tool.name for tool in request.tools if tool.custom is not None}
        self._custom_calls: set[tuple[int, int]] = set()
        """The calls of custom tools: choice and index."""

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        head = self._heads[choice] = self._event_head + b'{"index":%d,"delta":{"content":' % choice
        return head + b'"","role":"assistant","refusal":null' + _DELTA_END + self._event_tail

    def token_ids(self, choice: int, tokens: Sequence[int], prompt: Sequence[int] = ()) -> bytes:
        body = {"index": choice, "delta": {}, "logprobs": None, "finish_reason": None, "token_ids": tokens}
        field = b',"prompt_token_ids":' + _encode(prompt) if prompt else b""
        return self._event_head + _encode(body) + b"]" + field + self._event_tail[1:]

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a chunk with a text delta. Raises :class:`KeyError` for a choice that was not opened."""
        if logprobs:
            return self._chunk(choice, {"content": text}, logprobs)
        return self._heads[choice] + _encode(text) + _DELTA_END + self._event_tail

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        return self._chunk(choice, self._reasoning(text), logprobs)

    def call(self, choice: int, index: int, call_id: str, name: str) -> bytes:
        if name in self._custom_names:
            self._custom_calls.add((choice, index))
            custom = {"index": index, "id": call_id, "type": "custom", "custom": {"name": name, "input": ""}}
            return self._chunk(choice, {"tool_calls": [custom]})
        function = {"name": name, "arguments": ""}
        if self._request.response.functions_form:
            return self._chunk(choice, {"function_call": function})
        call = {"index": index, "id": call_id, "type": "function", "function": function}
        return self._chunk(choice, {"tool_calls": [call]})

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        if self._request.response.functions_form:
            return self._chunk(choice, {"function_call": {"arguments": text}})
        delta = (
            {"custom": {"input": text}} if (choice, index) in self._custom_calls else {"function": {"arguments": text}}
        )
        return self._chunk(choice, {"tool_calls": [{"index": index} | delta]})

    def closing(self, choice: int, reason: FinishReason, stop: str = "") -> bytes:
        word = self._word(reason).encode()
        end = b'{"index":%d,"delta":{},"logprobs":null,"finish_reason":"%s"}' % (choice, word)
        return self._event_head + end + self._event_tail

    def _chunk(self, choice: int, delta: dict[str, object], logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a chunk outside the hot path."""
        body = {
            "index": choice,
            "delta": delta,
            "logprobs": chat_logprobs(logprobs) if logprobs else None,
            "finish_reason": None,
        }
        return self._event_head + _encode(body) + self._event_tail

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        return _encode(
            {"object": self._kind}
            | self._identity
            | {"choices": [self._choice_object(choice) for choice in choices], "usage": self._usage_object(usage)}
            | self._prompt_fields(choices)
        )

    def _prompt_fields(self, choices: Sequence[Choice]) -> dict[str, object]:
        """Return vLLM's ``prompt_logprobs`` and ``prompt_token_ids``, as the request asks for them."""
        fields: dict[str, object] = {}
        if self._request.return_token_ids:
            fields["prompt_token_ids"] = choices[0].prompt_tokens
        prompt = next((choice.prompt for choice in choices if choice.prompt is not None), None)
        if prompt is not None and self._request.response.prompt_logprobs is not None:
            fields["prompt_logprobs"] = vllm_form(prompt, self._request.response.prompt_logprobs)
        return fields

    def _choice_object(self, choice: Choice) -> dict[str, object]:
        message: dict[str, object] = {
            "role": "assistant",
            "content": choice.text or (None if choice.calls else ""),
            "refusal": None,
        }
        if self._detailed:
            message["annotations"] = []
        if choice.reasoning:
            message |= self._reasoning(choice.reasoning)
        if choice.calls and self._request.response.functions_form:
            message["function_call"] = {"name": choice.calls[0].name, "arguments": choice.calls[0].arguments}
        elif choice.calls:
            message["tool_calls"] = [self._call_object(call) for call in choice.calls]
        return {
            "index": choice.index,
            "message": message,
            "logprobs": None if choice.logprobs is None else chat_logprobs(choice.logprobs),
            "finish_reason": self._word(choice.reason),
        } | ({"token_ids": choice.tokens} if self._request.return_token_ids else {})

    def _reasoning(self, text: str) -> dict[str, object]:
        """Return the field that llama.cpp and vLLM use, and under ``/v1`` its newer name in vLLM."""
        names = ("reasoning_content", "reasoning") if self._detailed else ("reasoning_content",)
        return dict.fromkeys(names, text)

    def _call_object(self, call: Call) -> dict[str, object]:
        if call.name in self._custom_names:
            return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

    def _word(self, reason: FinishReason) -> str:
        if reason == "cut":
            return "length"
        return "function_call" if reason == "tool_calls" and self._request.response.functions_form else reason


class ObfuscatedResponseEncoder(ChatResponseEncoder):
    """Pads each delta with an ``obfuscation`` field, for ``stream_options.include_obfuscation``.

    By the reference, this prevents guessing the text from the token lengths that encrypted packet sizes reveal.
    """

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        return self._chunk(choice, {"content": text}, logprobs)

    def _chunk(self, choice: int, delta: dict[str, object], logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        event = super()._chunk(choice, delta, logprobs).removesuffix(_CHUNK_END) + b',"obfuscation":"'
        end = b'"' + _CHUNK_END
        filling = -(len(event) + len(end)) % OBFUSCATED_BLOCK
        return event + secrets.token_hex(filling).encode()[:filling] + end
