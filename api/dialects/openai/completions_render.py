"""Response encoder for ``text_completion`` objects and chunks."""

import codecs
from collections.abc import Sequence

import msgspec

from api.dialects.interface import Choice, TokenLogprob, Usage
from api.dialects.openai.errors import error_object
from api.dialects.openai.render import detailed_usage
from shared.protocol.errors import Problem
from shared.protocol.events import FinishReason
from shared.protocol.request import ChatRequest

_encode = msgspec.json.Encoder().encode
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class CompletionResponseEncoder:
    """An :class:`api.dialects.interface.ResponseEncoder` for one plain completion request.

    Completions have no reasoning and no tool calls: everything that the model generates is text.
    """

    done = b"data: [DONE]\n\n"

    def __init__(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> None:
        self._identity = self._identify(request, answer_id=answer_id, created=created, fingerprint=fingerprint)
        self._request = request
        self._event_head = b"data: " + _encode(self._identity)[:-1] + b',"choices":['
        # By the reference, with include_usage every chunk except the last has a usage field that is null.
        self._event_tail = b"]%s}\n\n" % (b',"usage":null' if request.include_usage else b"")
        self._text_tail = b',"logprobs":null,"finish_reason":null}' + self._event_tail
        self._offsets: dict[int, _Offsets] = {}

    def opening(self, choice: int) -> bytes:
        """Encode the prompt if ``echo`` is set, else nothing: completions have no role."""
        repeated = self._repeated(choice)
        return self.content(choice, repeated) if repeated else b""

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a chunk with a text delta."""
        if logprobs:
            offsets = self._offsets.setdefault(choice, _Offsets())
            return self._chunk(choice, text, logprobs_object(logprobs, offsets), None)
        return self._event_head + b'{"index":%d,"text":' % choice + _encode(text) + self._text_tail

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a chunk with a text delta."""
        return self.content(choice, text, logprobs)

    def call(self, choice: int, index: int, call_id: str, name: str) -> bytes:
        """Nothing: no tools are offered."""
        return b""

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        """Nothing: no tools are offered."""
        return b""

    def closing(self, choice: int, reason: FinishReason) -> bytes:
        """Encode the chunk with the finish reason of a choice."""
        return self._chunk(choice, "", None, _word(reason))

    def usage(self, usage: Usage) -> bytes:
        """Encode the usage chunk, which has no choices; empty unless the request asked for it."""
        if not self._request.include_usage:
            return b""
        return self._event_head + b'],"usage":' + _encode(self._usage_object(usage)) + b"}\n\n"

    def failure(self, problem: Problem) -> bytes:
        """Encode an error event and the terminator."""
        return b"data: " + _encode({"error": error_object(problem)}) + b"\n\n" + self.done

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """Encode the ``text_completion`` object."""
        rendered = [
            {
                "index": choice.index,
                "text": self._repeated(choice.index) + choice.text,
                "logprobs": None if choice.logprobs is None else logprobs_object(choice.logprobs, _Offsets()),
                "finish_reason": _word(choice.reason),
            }
            for choice in choices
        ]
        return _encode(self._identity | {"choices": rendered, "usage": self._usage_object(usage)})

    def _identify(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> dict[str, object]:
        """Return the fields that the response and each of its chunks share."""
        return {
            "id": f"cmpl-{answer_id}",
            "object": "text_completion",
            "created": created,
            "model": request.model,
            "system_fingerprint": fingerprint,
        }

    def _usage_object(self, usage: Usage) -> dict[str, object]:
        return detailed_usage(usage)

    def _repeated(self, choice: int) -> str:
        """Return the part of the prompt that precedes the text of a choice."""
        prompt = self._request.prompts[choice // self._request.n]
        return prompt if self._request.echo and isinstance(prompt, str) else ""

    def _chunk(self, choice: int, text: str, logprobs: dict[str, object] | None, reason: str | None) -> bytes:
        body = {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return self._event_head + _encode(body) + self._event_tail


class _Offsets:
    """Computes the character offset of each token; a token inside a character has the offset of that character."""

    def __init__(self) -> None:
        self._decoder = _Utf8Decoder("replace")
        self._characters = 0

    def of(self, tokens: Sequence[TokenLogprob]) -> list[int]:
        """Return the offsets of the next tokens."""
        offsets = []
        for token in tokens:
            offsets.append(self._characters)
            self._characters += len(self._decoder.decode(token.piece))
        return offsets


def logprobs_object(tokens: Sequence[TokenLogprob], offsets: _Offsets) -> dict[str, object]:
    """Return the ``logprobs`` object of a choice.

    The most likely tokens at each position include the sampled one, which may thus be one more than asked for.
    """
    return {
        "tokens": [_shown(token.piece) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_most_likely(token) for token in tokens] if any(token.top for token in tokens) else None,
        "text_offset": offsets.of(tokens),
    }


def _most_likely(token: TokenLogprob) -> dict[str, float]:
    return {_shown(top.piece): top.logprob for top in token.top} | {_shown(token.piece): token.logprob}


def _shown(piece: bytes) -> str:
    """Return a token as text, or as escaped bytes if it is not valid text, as the OpenAI service does."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _word(reason: FinishReason) -> str:
    return "length" if reason == "length" else "stop"
