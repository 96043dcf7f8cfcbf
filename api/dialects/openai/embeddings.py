"""``/v1/embeddings``: schema, parser and encoder, of which those of other APIs are variants.

Beyond OpenAI's fields there are vLLM's for the length of texts, and Azure's ``input_type``.
"""

import struct
from binascii import b2a_base64
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from api.dialects.base.body import decode_object
from api.dialects.base.fields import NonEmptyText, Strict
from api.dialects.base.interface import Dialect, ResponseEncoder, Usage
from api.dialects.base.sampling import MAX_COUNT
from api.dialects.base.unsupported import check_supported, unsupported
from api.dialects.base.validation import validate
from api.dialects.openai.completions_schema import Prompt as Input
from api.dialects.openai.completions_schema import prompts_of
from api.dialects.openai.tokens import NO_RESPONSE
from shared.protocol.cost import prompt_cost
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.events import Embedded
from shared.protocol.request import ChatRequest, Embed, Prompt, ResponseForm

MAX_TOKENS = 300_000
"""Maximum number of tokens of a request, OpenAI's; of texts, it is estimated."""

Dimensions = Annotated[int, Field(ge=1, le=2**16)]
Truncation = Annotated[int, Field(ge=-1, le=MAX_COUNT)]


class EmbeddingRequest(Strict):
    """The body of ``POST /v1/embeddings``."""

    model: NonEmptyText
    input: Input
    dimensions: Dimensions | None = None
    encoding_format: Literal["float", "base64"] | None = None
    user: str | None = None
    input_type: Literal["text", "query", "document"] | None = None
    truncate_prompt_tokens: Truncation | None = None
    add_special_tokens: bool | None = None


def parse_embeddings(body: bytes, model: str | None = None) -> ChatRequest:
    """Parse a request for vectors. ``model`` replaces the one in it. Raises :class:`RequestRefused` and no other."""
    value = decode_object(body)
    if model is not None:
        value["model"] = model
    return translate_embeddings(validate(EmbeddingRequest, value))


def translate_embeddings(request: EmbeddingRequest) -> ChatRequest:
    """Return the internal form of a validated request. Raises :class:`RequestRefused`."""
    notes, texts = check_supported(request), prompts_of(request.input)
    # Texts always get the special tokens, without which a vector is another one; ids have them, or mean other texts.
    own_ids = request.add_special_tokens is False
    if own_ids and isinstance(texts[0], str):
        raise unsupported("add_special_tokens", "Texts always get the model's special tokens.")
    work = Embed(
        dimensions=request.dimensions or 0,
        cut=request.truncate_prompt_tokens or 0,
        prefix="" if request.input_type is None or request.input_type == "text" else request.input_type,
        own_ids=own_ids,
        is_list=isinstance(request.input, list) and not isinstance(request.input[0], int),
    )
    form = ResponseForm(base64=request.encoding_format == "base64", notes=notes)
    return embedding_request(request.model, texts, work, form)


def embedding_request(model: str, texts: Sequence[Prompt], work: Embed, form: ResponseForm) -> ChatRequest:
    """Return the request for vectors of ``texts``. Raises :class:`RequestRefused` if they are too long together."""
    request = ChatRequest(model=model, prompts=tuple(texts), work=work, sampling=NO_RESPONSE, response=form)
    if (tokens := prompt_cost(request)) > MAX_TOKENS:
        message = (
            f"Invalid '{work.param}': the texts have about {tokens} tokens together, and a request may have "
            f"{MAX_TOKENS}. Send several requests."
        )
        raise refuse(ProblemKind.INVALID, message, param=work.param, code="max_tokens_per_request")
    return request


def split(found: Sequence[Embedded]) -> Iterator[bytes]:
    """Yield the vector of each text, in order."""
    for one in found:
        width = len(one.vectors) // one.texts
        yield from (one.vectors[begin : begin + width] for begin in range(0, len(one.vectors), width))


def floats(vector: bytes) -> bytes:
    """Return a vector as a JSON array."""
    return msgspec.json.encode(struct.unpack(f"<{len(vector) // 4}f", vector))


class EmbeddingEncoder(ResponseEncoder):
    """Encodes vectors, which are never streamed."""

    done = b""

    def __init__(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> None:
        self._base64 = request.response.base64
        self._about = {"object": "list", "model": request.model, "id": f"embd-{response_id}", "created": created}

    def vectors(self, found: Sequence[Embedded], usage: Usage) -> bytes:
        items = (
            b'{"object":"embedding","index":%d,"embedding":%b}' % (index, self._encoded(vector))
            for index, vector in enumerate(split(found))
        )
        counts = {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}
        rest = msgspec.json.encode(self._about | {"usage": counts})
        return b'{"data":[%b],%b' % (b",".join(items), rest[1:])

    def _encoded(self, vector: bytes) -> bytes:
        return b'"%b"' % b2a_base64(vector, newline=False) if self._base64 else floats(vector)


class OpenAIEmbeddings(Dialect):
    """The :class:`api.dialects.base.interface.Dialect` of OpenAI's embeddings."""

    encoder = EmbeddingEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return parse_embeddings(body, self.asked.deployment)
