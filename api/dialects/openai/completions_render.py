"""Response encoder for ``text_completion`` objects and chunks."""

from collections.abc import Mapping, Sequence

import msgspec

from api.dialects.base.interface import Choice, TokenLogprob, Usage
from api.dialects.openai.logprobs import (
    Offsets,
    completion_logprobs,
    joined,
    prompt_logprobs_object,
    prompt_pieces,
    vllm_form,
)
from api.dialects.openai.render import ChunkEncoder
from shared.protocol.events import FinishReason, PromptLogprobs
from shared.protocol.request import ChatRequest

_TEXT_END = b',"logprobs":null,"finish_reason":null}'

_encode = msgspec.json.Encoder().encode


class CompletionResponseEncoder(ChunkEncoder):
    """An :class:`api.dialects.base.interface.ResponseEncoder` for one plain completion request.

    Completions have no reasoning and no tool calls: everything that the model generates is text.
    """

    _kind, _chunk_kind, _id_prefix = "text_completion", "text_completion", "cmpl-"

    def __init__(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> None:
        super().__init__(request, response_id=response_id, created=created, fingerprint=fingerprint)
        self._offsets: dict[int, Offsets] = {}

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        """Encode the prompt if ``echo`` is set, else nothing: completions have no role.

        With log probabilities, :meth:`prompt` does.
        """
        repeated = self._repeated(choice, None)
        return self.content(choice, repeated) if repeated and self._request.sampling.prompt_scoring is None else b""

    def prompt(self, choice: int, prompt: PromptLogprobs) -> bytes:
        text = self._repeated(choice, prompt)
        self._offsets[choice] = Offsets(len(text))
        return self._chunk(
            choice, text, prompt_logprobs_object(prompt, text, self._request.sampling.top_logprobs), None
        )

    def token_ids(self, choice: int, tokens: Sequence[int], prompt: Sequence[int] = ()) -> bytes:
        body = {"index": choice, "text": "", "logprobs": None, "finish_reason": None, "token_ids": tokens}
        return self._event_head + _encode(body | ({"prompt_token_ids": prompt} if prompt else {})) + self._event_tail

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        if logprobs:
            offsets = self._offsets.setdefault(choice, Offsets())
            return self._chunk(choice, text, completion_logprobs(logprobs, offsets), None)
        return self._event_head + b'{"index":%d,"text":' % choice + _encode(text) + _TEXT_END + self._event_tail

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        return self.content(choice, text, logprobs)

    def closing(self, choice: int, reason: FinishReason, stop: str = "") -> bytes:
        return self._chunk(choice, "", None, _word(reason))

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        rendered = [self._choice_object(choice) for choice in choices]
        return _encode(
            {"object": self._kind} | self._identity | {"choices": rendered, "usage": self._usage_object(usage)}
        )

    def _choice_object(self, choice: Choice) -> dict[str, object]:
        repeated = self._repeated(choice.index, choice.prompt)
        logprobs = None if choice.logprobs is None else completion_logprobs(choice.logprobs, Offsets(len(repeated)))
        if logprobs is not None and choice.prompt is not None and self._request.response.echo:
            logprobs = joined(
                prompt_logprobs_object(choice.prompt, repeated, self._request.sampling.top_logprobs), logprobs
            )
        body: dict[str, object] = {
            "index": choice.index,
            "text": repeated + choice.text,
            "logprobs": logprobs,
            "finish_reason": _word(choice.reason),
        }
        if choice.prompt is not None and self._request.response.prompt_logprobs is not None:
            body["prompt_logprobs"] = vllm_form(choice.prompt, self._request.response.prompt_logprobs)
        if self._request.return_token_ids:
            body |= {"token_ids": choice.tokens, "prompt_token_ids": choice.prompt_tokens}
        return body

    def _repeated(self, choice: int, scored: PromptLogprobs | None) -> str:
        """Return the part of the prompt that precedes the text of a choice: a prompt of token ids if it is ``scored``,
        because only workers know the texts of tokens."""
        if not self._request.response.echo:
            return ""
        prompt = self._request.prompts[choice // self._request.n]
        if isinstance(prompt, str):
            return prompt
        return b"".join(prompt_pieces(scored)).decode(errors="ignore") if scored is not None else ""

    def _chunk(self, choice: int, text: str, logprobs: Mapping[str, object] | None, reason: str | None) -> bytes:
        body = {"index": choice, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return self._event_head + _encode(body) + self._event_tail


def _word(reason: FinishReason) -> str:
    return "length" if reason == "length" else "stop"
