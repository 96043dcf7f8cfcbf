"""vLLM's ``/tokenize`` and ``/detokenize``: parsers of request bodies, and renderers of responses."""

from typing import Any

import msgspec

from api.dialects.base.body import decode_object
from api.dialects.base.fields import Items, NonEmptyText, Strict
from api.dialects.base.sampling import TokenId
from api.dialects.base.validation import invalid, missing, validate
from api.dialects.openai.extensions import ServedChatRequest
from api.dialects.openai.parse import translate
from shared.protocol.events import Tokenized
from shared.protocol.request import ChatRequest, Sampling, Tokenization

_NOTHING = Sampling(max_tokens=0)
_CHAT = ("messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")


class TokenizeRequest(Strict):
    """The body of ``POST /tokenize``: a prompt, or messages as in chats."""

    model: NonEmptyText
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(Strict):
    """The body of ``POST /detokenize``."""

    model: NonEmptyText
    tokens: Items[TokenId]


def parse_tokenize(body: bytes) -> ChatRequest:
    """Parse the body of a request for tokens. Raises :class:`RequestRefused` and no other exception."""
    value = decode_object(body)
    request = validate(TokenizeRequest, value)
    if request.prompt is None and request.messages is None:
        raise missing("prompt")
    if request.prompt is not None:
        for field in _CHAT:
            if getattr(request, field) is not None:
                raise invalid(field, "it can't be combined with 'prompt'")
        plain = ChatRequest(model=request.model, prompts=(request.prompt,))
    else:
        chat = {"model": request.model} | {field: value[field] for field in _CHAT if value.get(field) is not None}
        plain = translate(validate(ServedChatRequest, chat))
    # As in vLLM: chat templates write the special tokens themselves.
    special = request.prompt is not None if request.add_special_tokens is None else request.add_special_tokens
    wanted = Tokenization(add_special_tokens=special, strings=bool(request.return_token_strs))
    return msgspec.structs.replace(plain, sampling=_NOTHING, tokenization=wanted)


def parse_detokenize(body: bytes) -> ChatRequest:
    """Parse the body of a request for a text. Raises :class:`RequestRefused` and no other exception."""
    request = validate(DetokenizeRequest, decode_object(body))
    wanted = Tokenization(text=True)
    return ChatRequest(model=request.model, prompts=(tuple(request.tokens),), sampling=_NOTHING, tokenization=wanted)


def render_tokens(request: ChatRequest, found: Tokenized) -> bytes:
    strings = request.tokenization is not None and request.tokenization.strings
    return msgspec.json.encode(
        {
            "count": len(found.tokens),
            "max_model_len": found.context_length,
            "tokens": found.tokens,
            "token_strs": found.strings if strings else None,
        }
    )


def render_text(request: ChatRequest, found: Tokenized) -> bytes:
    return msgspec.json.encode({"prompt": found.text})
