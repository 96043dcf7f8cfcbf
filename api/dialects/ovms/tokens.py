"""``/v3/tokenize`` of OpenVINO Model Server."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from api.dialects.base.body import decode_object
from api.dialects.base.fields import ByType, Items, NonEmptyText, Strict
from api.dialects.base.interface import Dialect
from api.dialects.base.sampling import Count
from api.dialects.base.unsupported import Refused, check_supported
from api.dialects.base.validation import validate
from api.dialects.openai.tokens import NO_RESPONSE, model_of
from shared.protocol.events import Tokenized
from shared.protocol.request import ChatRequest, Tokenize

MAX_TEXTS = 128
"""Maximum number of texts of a request."""


class ModelServerTokenizeRequest(Strict):
    """The body of ``POST /v3/tokenize``."""

    model: NonEmptyText | None = None
    text: Annotated[
        str | Annotated[Items[str], Field(min_length=1, max_length=MAX_TEXTS)],
        ByType("one of a string or array of strings"),
    ]
    add_special_tokens: bool | None = None
    max_length: Count | None = None
    pad_to_max_length: Annotated[bool | None, Refused("Tokens are not padded.", neutral=(False,))] = None
    padding_side: Literal["left", "right"] | None = None


class ModelServerTokens(Dialect):
    """Of ``/v3/tokenize``."""

    omits_model = True
    _body: ModelServerTokenizeRequest

    def parse(self, body: bytes) -> ChatRequest:
        request = self._body = validate(ModelServerTokenizeRequest, decode_object(body))
        check_supported(request)
        wanted = Tokenize(add_special_tokens=request.add_special_tokens is not False)
        texts = (request.text,) if isinstance(request.text, str) else tuple(request.text)
        model = model_of(request.model, self.asked.fleet.serving())
        return ChatRequest(model=model, prompts=texts, sampling=NO_RESPONSE, work=wanted)

    def answer(self, request: ChatRequest, found: Sequence[Tokenized]) -> bytes:
        """Encode the tokens of a text, or those of each text of a list, cut to the length that the request wants."""
        rows = [one.tokens[: self._body.max_length] for one in found]
        return msgspec.json.encode({"tokens": rows[0] if isinstance(self._body.text, str) else rows})
