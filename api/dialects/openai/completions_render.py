"""Response encoder for ``text_completion`` objects and chunks."""

import codecs
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from api.dialects.base.interface import Choice, TokenLogprob, Usage
from api.dialects.openai.errors import error_object
from api.dialects.openai.prompt_logprobs import prompt_pieces, scored_tokens, vllm_form
from api.dialects.openai.render import detailed_usage
from shared.protocol.errors import Problem
from shared.protocol.events import FinishReason, PromptLogprobs
from shared.protocol.request import ChatRequest

_encode = msgspec.json.Encoder().encode
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


class CompletionResponseEncoder:
    """An :class:`api.dialects.base.interface.ResponseEncoder` for one plain completion request.

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

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        """Encode the prompt if ``echo`` is set, else nothing: completions have no role.

        With log probabilities, :meth:`prompt` does.
        """
        repeated = self._repeated(choice, None)
        return self.content(choice, repeated) if repeated and self._request.sampling.prompt_scoring is None else b""

    def prompt(self, choice: int, prompt: PromptLogprobs) -> bytes:
        """Encode the prompt with its log probabilities."""
        text = self._repeated(choice, prompt)
        self._offsets[choice] = _Offsets(len(text))
        return self._chunk(choice, text, self._echoed(prompt, text), None)

    def token_ids(self, choice: int, tokens: Sequence[int], prompt: Sequence[int] = ()) -> bytes:
        """Encode a chunk with token ids only, in vLLM's fields."""
        body = {"index": choice, "text": "", "logprobs": None, "finish_reason": None, "token_ids": tokens}
        return self._event_head + _encode(body | ({"prompt_token_ids": prompt} if prompt else {})) + self._event_tail

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
        """Encode nothing: completions have no tools."""
        return b""

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        """Encode nothing: completions have no tools."""
        return b""

    def closing(self, choice: int, reason: FinishReason, stop: str = "") -> bytes:
        """Encode the chunk with the finish reason of a choice."""
        return self._chunk(choice, "", None, _word(reason))

    def usage(self, usage: Usage) -> bytes:
        """Encode the usage chunk, which has no choices; empty unless the request asks for it."""
        if not self._request.include_usage:
            return b""
        return self._event_head + b'],"usage":' + _encode(self._usage_object(usage)) + b"}\n\n"

    def failure(self, problem: Problem) -> bytes:
        """Encode an error event and the terminator."""
        return b"data: " + _encode({"error": error_object(problem)}) + b"\n\n" + self.done

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """Encode the ``text_completion`` object."""
        rendered = [self._choice_object(choice) for choice in choices]
        return _encode(self._identity | {"choices": rendered, "usage": self._usage_object(usage)})

    def _choice_object(self, choice: Choice) -> dict[str, object]:
        repeated = self._repeated(choice.index, choice.prompt)
        logprobs = None if choice.logprobs is None else logprobs_object(choice.logprobs, _Offsets(len(repeated)))
        if logprobs is not None and choice.prompt is not None and self._request.echo:
            logprobs = _joined(self._echoed(choice.prompt, repeated), logprobs)
        body: dict[str, object] = {
            "index": choice.index,
            "text": repeated + choice.text,
            "logprobs": logprobs,
            "finish_reason": _word(choice.reason),
        }
        if choice.prompt is not None and self._request.prompt_logprobs is not None:
            body["prompt_logprobs"] = vllm_form(choice.prompt, self._request.prompt_logprobs)
        if self._request.return_token_ids:
            body |= {"token_ids": choice.tokens, "prompt_token_ids": choice.prompt_tokens}
        return body

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

    def _repeated(self, choice: int, scored: PromptLogprobs | None) -> str:
        """Return the part of the prompt that precedes the text of a choice: a prompt of token ids if it is ``scored``,
        because only workers know the texts of tokens."""
        if not self._request.echo:
            return ""
        prompt = self._request.prompts[choice // self._request.n]
        if isinstance(prompt, str):
            return prompt
        return b"".join(prompt_pieces(scored)).decode(errors="ignore") if scored is not None else ""

    def _echoed(self, prompt: PromptLogprobs, text: str) -> dict[str, list[object] | None]:
        """Return the ``logprobs`` object of a prompt, which begins with a token without a log probability.

        Tokens that precede ``text``, such as one for the beginning of a text, have the offset 0.
        """
        pieces = prompt_pieces(prompt)
        whole = b"".join(pieces).decode(errors="replace")
        before = len(whole) - len(text) if whole.endswith(text) else 0
        tokens = scored_tokens(prompt, self._request.sampling.top_logprobs)
        return {
            "tokens": [_shown(piece) for piece in pieces],
            "token_logprobs": [None, *(token.logprob for token in tokens)],
            "top_logprobs": [None, *map(_most_likely, tokens)] if self._request.sampling.top_logprobs else None,
            "text_offset": [max(0, offset - before) for offset in _Offsets().of(pieces)],
        }

    def _chunk(self, choice: int, text: str, logprobs: Mapping[str, object] | None, reason: str | None) -> bytes:
        body = {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return self._event_head + _encode(body) + self._event_tail


class _Offsets:
    """Computes the character offset of each token; a token inside a character has the offset of that character."""

    def __init__(self, start: int = 0) -> None:
        self._decoder = _Utf8Decoder("replace")
        self._characters = start

    def of(self, pieces: Iterable[bytes]) -> list[int]:
        """Return the offsets of the next tokens."""
        offsets = []
        for piece in pieces:
            offsets.append(self._characters)
            self._characters += len(self._decoder.decode(piece))
        return offsets


def logprobs_object(tokens: Sequence[TokenLogprob], offsets: _Offsets) -> dict[str, list[object] | None]:
    """Return the ``logprobs`` object of a choice.

    The most likely tokens at each position include the sampled one, which may thus be one more than requested.
    """
    return {
        "tokens": [_shown(token.piece) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [_most_likely(token) for token in tokens] if any(token.top for token in tokens) else None,
        "text_offset": [*offsets.of(token.piece for token in tokens)],
    }


def _joined(
    prompt: dict[str, list[object] | None], text: dict[str, list[object] | None]
) -> dict[str, list[object] | None]:
    """Return the ``logprobs`` object of a prompt and the text after it."""
    return {field: None if values is None else [*values, *(text[field] or ())] for field, values in prompt.items()}


def _most_likely(token: TokenLogprob) -> msgspec.Raw:
    """Return an object as JSON, which takes a fifth of its memory."""
    likely = {_shown(top.piece): top.logprob for top in token.top}
    return msgspec.Raw(_encode(likely | {_shown(token.piece): token.logprob}))


def _shown(piece: bytes) -> str:
    """Return a token as text, or as escaped bytes if it is not valid text, as the OpenAI service does."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def _word(reason: FinishReason) -> str:
    return "length" if reason == "length" else "stop"
