"""Schema of the plain completion request, after the reference and the newest official SDK."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

from pydantic import Discriminator, Field, Tag

from api.dialects.base.fields import WRONG_TYPE, Items, NonEmptyText, Strict, tag
from api.dialects.base.sampling import MAX_COUNT, Into, LogitBias, Penalty, Seed, Stop, Temperature, TokenId, TopP
from api.dialects.base.unsupported import CHATS_ONLY, Refused
from api.dialects.openai.schema import StreamOptions
from shared.protocol import request as protocol

MAX_PROMPTS = 2048
DEFAULT_MAX_TOKENS = 16
"""The reference's default for ``max_tokens``."""

Tokens = Annotated[Items[TokenId], Field(min_length=1)]
_STRING, _STRINGS, _TOKENS, _TOKEN_LISTS = (tag(name) for name in ("string", "strings", "tokens", "token_lists"))
_FORMS: dict[type, str] = {str: _STRINGS, int: _TOKENS, list: _TOKEN_LISTS}


def _form(value: Any) -> str | None:
    """Return the union branch of a prompt, chosen by its type or the type of its first item."""
    if isinstance(value, str):
        return _STRING
    if isinstance(value, list):
        return _FORMS.get(type(value[0])) if value else _STRINGS
    return None


Prompt = Annotated[
    Annotated[str, Tag(_STRING)]
    | Annotated[Items[str], Field(min_length=1, max_length=MAX_PROMPTS), Tag(_STRINGS)]
    | Annotated[Tokens, Tag(_TOKENS)]
    | Annotated[Items[Tokens], Field(min_length=1, max_length=MAX_PROMPTS), Tag(_TOKEN_LISTS)],
    Discriminator(
        _form,
        custom_error_type=WRONG_TYPE,
        custom_error_message="a string, array of strings, array of integers, or array of integer arrays",
    ),
]


def prompts_of(prompt: Prompt) -> tuple[protocol.Prompt, ...]:
    """Return the texts, or arrays of token ids, of a validated prompt or input."""
    if isinstance(prompt, str):
        return (prompt,)
    if isinstance(prompt[0], int):
        return (tuple(cast("Sequence[int]", prompt)),)
    return tuple(item if isinstance(item, str) else tuple(cast("Sequence[int]", item)) for item in prompt)


class CompletionStreamOptions(StreamOptions):
    """Options of a stream, of which those of chats have one more."""

    include_obfuscation: Annotated[bool | None, CHATS_ONLY] = None


class CompletionRequest(Strict):
    """The body of ``POST /v1/completions``."""

    model: NonEmptyText
    prompt: Prompt | None
    best_of: Annotated[int, Field(ge=1, le=20)] | None = None
    echo: bool | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: LogitBias | None = None
    logprobs: Annotated[int, Field(ge=0, le=5), Into(convert=lambda _: True), Into("top_logprobs")] | None = None
    max_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT), Into()] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    presence_penalty: Penalty | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    stream: bool | None = None
    stream_options: CompletionStreamOptions | None = None
    suffix: Annotated[str | None, Refused("The engine can only continue a prompt.", neutral=("",))] = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    user: str | None = None
