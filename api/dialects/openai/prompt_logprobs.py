"""The log probabilities of prompts, in the forms of OpenAI's ``echo`` and of vLLM's ``prompt_logprobs``."""

import msgspec

from api.dialects.base.interface import TokenLogprob
from shared.protocol.events import PromptLogprobs, RankedToken, TopToken

_encode = msgspec.json.Encoder().encode


def vllm_form(prompt: PromptLogprobs, count: int) -> list[msgspec.Raw | None]:
    """Return vLLM's ``prompt_logprobs``: for each token an object of the token and the ``count`` most likely ones, by
    id; null for the first token. The objects are JSON, which takes a fifth of their memory."""
    return [
        None,
        *(_entry((token, *top[:count])) for token, top in zip(prompt.rest, prompt.top, strict=True)),
    ]


def _entry(tokens: tuple[RankedToken, ...]) -> msgspec.Raw:
    entry = {
        str(one.token): {"logprob": one.logprob, "rank": one.rank, "decoded_token": one.piece.decode(errors="replace")}
        for one in tokens
    }
    return msgspec.Raw(_encode(entry))


def scored_tokens(prompt: PromptLogprobs, count: int) -> list[TokenLogprob]:
    """Return the tokens of a prompt after the first, each with the ``count`` most likely ones."""
    return [
        TokenLogprob(one.piece, one.logprob, tuple(TopToken(likely.piece, likely.logprob) for likely in top[:count]))
        for one, top in zip(prompt.rest, prompt.top, strict=True)
    ]


def prompt_pieces(prompt: PromptLogprobs) -> list[bytes]:
    """Return the bytes of all tokens of a prompt."""
    return [prompt.first[1], *(one.piece for one in prompt.rest)]
