"""vLLM's ``/tokenize``, ``/detokenize`` and ``/tokenizer_info``, and llama.cpp's
``/apply-template``.

Their model may be left out if only one is served.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from api.dialects.base.body import decode_object
from api.dialects.base.fields import Items, NonEmptyText, Strict
from api.dialects.base.interface import Dialect
from api.dialects.base.query import validate_query
from api.dialects.base.sampling import TokenId
from api.dialects.base.validation import invalid, missing, validate
from api.dialects.openai.extensions import ServedChatRequest
from api.dialects.openai.parse import translate
from shared.protocol.events import Tokenized
from shared.protocol.request import NO_FORM, ChatRequest, Sampling, Tokenize

NO_RESPONSE = Sampling(max_tokens=0)
_CHAT = ("messages", "tools", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")


class TokenizerInfoQuery(Strict):
    """The query of ``GET /tokenizer_info``."""

    model: NonEmptyText | None = None


class TokenizeRequest(Strict):
    """The body of ``POST /tokenize``: a prompt, or messages as in chats."""

    model: NonEmptyText | None = None
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

    model: NonEmptyText | None = None
    tokens: Items[TokenId]


def model_of(named: str | None, served: Collection[str]) -> str:
    """Return the model of a request: the only ``served`` one if it names none. Raises :class:`RequestRefused`."""
    if named is None and len(served) != 1:
        raise missing("model")
    return next(iter(served)) if named is None else named


class _Tokenizer(Dialect):
    """Of requests that a tokenizer answers."""

    omits_model = True

    def model_of(self, named: str | None) -> str:
        """Return the model of a request. Raises :class:`RequestRefused`."""
        return model_of(named, self.asked.fleet.serving())


class Tokens(_Tokenizer):
    """Of ``/tokenize``."""

    def parse(self, body: bytes) -> ChatRequest:
        value = decode_object(body)
        request = validate(TokenizeRequest, value)
        model = self.model_of(request.model)
        if request.prompt is None and request.messages is None:
            raise missing("prompt")
        if request.prompt is not None:
            for field in _CHAT:
                if getattr(request, field) is not None:
                    raise invalid(field, "it can't be combined with 'prompt'")
            plain = ChatRequest(model=model, prompts=(request.prompt,))
        else:
            chat = {"model": model} | {field: value[field] for field in _CHAT if value.get(field) is not None}
            plain = _without_images(translate(validate(ServedChatRequest, chat)))
        # As in vLLM: chat templates write the special tokens themselves.
        special = request.prompt is not None if request.add_special_tokens is None else request.add_special_tokens
        wanted = Tokenize(add_special_tokens=special, strings=bool(request.return_token_strs))
        return msgspec.structs.replace(plain, sampling=NO_RESPONSE, work=wanted)

    def answer(self, request: ChatRequest, found: Sequence[Tokenized]) -> bytes:
        (one,) = found
        strings = isinstance(request.work, Tokenize) and request.work.strings
        return msgspec.json.encode(
            {
                "count": len(one.tokens),
                "max_model_len": one.context_length,
                "tokens": one.tokens,
                "token_strs": one.strings if strings else None,
            }
        )


def _without_images(chat: ChatRequest) -> ChatRequest:
    for image in chat.images:
        raise invalid(image.param, "only token counts include images: /v1/messages/count_tokens")
    return chat


class Texts(_Tokenizer):
    """Of ``/detokenize``."""

    def parse(self, body: bytes) -> ChatRequest:
        request = validate(DetokenizeRequest, decode_object(body))
        model, tokens = self.model_of(request.model), tuple(request.tokens)
        return ChatRequest(model=model, prompts=(tokens,), sampling=NO_RESPONSE, work=Tokenize(text=True))

    def answer(self, request: ChatRequest, found: Sequence[Tokenized]) -> bytes:
        return msgspec.json.encode({"prompt": found[0].text})


class Templates(Texts):
    """Of ``/apply-template``: a chat's prompt as text, of the body of a chat completion."""

    def parse(self, body: bytes) -> ChatRequest:
        value = decode_object(body)
        request = validate(ServedChatRequest, value | {"model": self.model_of(value.get("model"))})
        wanted = Tokenize(add_special_tokens=False, text=True)
        chat = _without_images(translate(request))
        return msgspec.structs.replace(chat, sampling=NO_RESPONSE, work=wanted, n=1, response=NO_FORM)


class TokenizerInfo(_Tokenizer):
    """Of ``/tokenizer_info``: what a tokenizer's own configuration has of it."""

    def parse(self, body: bytes) -> ChatRequest:
        model = self.model_of(validate_query(TokenizerInfoQuery, self.asked.query).model)
        return ChatRequest(model=model, prompts=("",), sampling=NO_RESPONSE, work=Tokenize(describe=True))

    def answer(self, request: ChatRequest, found: Sequence[Tokenized]) -> bytes:
        (one,) = found
        bos, eos = one.strings
        return msgspec.json.encode(
            {
                "model": request.model,
                "bos_token": bos or None,
                "eos_token": eos or None,
                "chat_template": one.text or None,
                "model_max_length": one.context_length,
            }
        )
