"""Log probabilities in the forms of OpenAI's chat completions and completions, and of vLLM's ``prompt_logprobs``.

Many objects are built as JSON, which takes a fifth of their memory.
"""

import codecs
from collections.abc import Iterable, Sequence

import msgspec

from api.dialects.base.interface import TokenLogprob
from shared.protocol.events import PromptLogprobs, RankedToken, TopToken

_encode = msgspec.json.Encoder().encode
_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, object]:
    return {"content": logprob_objects(tokens), "refusal": None}


def logprob_objects(tokens: Sequence[TokenLogprob]) -> list[msgspec.Raw]:
    return [
        msgspec.Raw(
            _encode(
                {
                    **_token(token.piece, token.logprob),
                    "top_logprobs": [_token(top.piece, top.logprob) for top in token.top],
                }
            )
        )
        for token in tokens
    ]


def _token(piece: bytes, logprob: float) -> dict[str, object]:
    return {"token": piece.decode(errors="replace"), "logprob": logprob, "bytes": list(piece)}


class Offsets:
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


def completion_logprobs(tokens: Sequence[TokenLogprob], offsets: Offsets) -> dict[str, list[object]]:
    """Return the ``logprobs`` object of a completion.

    The most likely tokens at each position include the sampled one, which may thus be one more than requested.
    """
    return {
        "tokens": [_shown(token.piece) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [*map(_most_likely, tokens)],
        "text_offset": [*offsets.of(token.piece for token in tokens)],
    }


def prompt_logprobs_object(prompt: PromptLogprobs, text: str, count: int) -> dict[str, list[object]]:
    """Return the ``logprobs`` object of a completion's prompt, which begins with a token without a log probability.

    Tokens that precede ``text``, such as one for the beginning of a text, have the offset 0.
    """
    pieces = prompt_pieces(prompt)
    whole = b"".join(pieces).decode(errors="replace")
    before = len(whole) - len(text) if whole.endswith(text) else 0
    tokens = _scored_tokens(prompt, count)
    return {
        "tokens": [_shown(piece) for piece in pieces],
        "token_logprobs": [None, *(token.logprob for token in tokens)],
        "top_logprobs": [None, *map(_most_likely, tokens)],
        "text_offset": [max(0, offset - before) for offset in Offsets().of(pieces)],
    }


def joined(prompt: dict[str, list[object]], text: dict[str, list[object]]) -> dict[str, list[object]]:
    """Return the ``logprobs`` object of a prompt and the text after it."""
    return {field: [*values, *text[field]] for field, values in prompt.items()}


def _most_likely(token: TokenLogprob) -> msgspec.Raw:
    likely = {_shown(top.piece): top.logprob for top in token.top}
    return msgspec.Raw(_encode(likely | {_shown(token.piece): token.logprob}))


def _shown(piece: bytes) -> str:
    """Return a token as text, or as escaped bytes if it is not valid text, as the OpenAI service does."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


def vllm_form(prompt: PromptLogprobs, count: int) -> list[msgspec.Raw | None]:
    """Return vLLM's ``prompt_logprobs``: for each token an object of the token and the ``count`` most likely ones, by
    id; null for the first token."""
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


def _scored_tokens(prompt: PromptLogprobs, count: int) -> list[TokenLogprob]:
    """Return the tokens of a prompt after the first, each with the ``count`` most likely ones."""
    return [
        TokenLogprob(one.piece, one.logprob, tuple(TopToken(likely.piece, likely.logprob) for likely in top[:count]))
        for one, top in zip(prompt.rest, prompt.top, strict=True)
    ]


def prompt_pieces(prompt: PromptLogprobs) -> list[bytes]:
    return [prompt.first[1], *(one.piece for one in prompt.rest)]
