"""``/api/embed`` of Ollama, and ``/api/embeddings``, which was before it and has one text."""

import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
from pydantic import Field

from api.dialects.base.body import decode_object
from api.dialects.base.fields import ByType, History, Items, NonEmptyText
from api.dialects.base.interface import ResponseEncoder, Usage
from api.dialects.base.unsupported import check_supported
from api.dialects.base.validation import validate
from api.dialects.openai.completions_schema import MAX_PROMPTS
from api.dialects.openai.embeddings import Dimensions, embedding_request, floats, split
from shared.protocol.events import Embedded
from shared.protocol.request import ChatRequest, Embed, ResponseForm

Texts = Annotated[Items[str], Field(min_length=1, max_length=MAX_PROMPTS)]


class OllamaEmbedRequest(History):
    """The body of ``POST /api/embed``. Texts are cut unless ``truncate`` is false."""

    model: NonEmptyText
    input: Annotated[str | Texts, ByType("one of a string or array of strings")]
    truncate: bool | None = None
    dimensions: Dimensions | None = None


class OllamaEmbeddingsRequest(History):
    """The body of ``POST /api/embeddings``."""

    model: NonEmptyText
    prompt: str


def parse_embed(body: bytes) -> ChatRequest:
    """Parse the body of ``/api/embed``. Raises :class:`RequestRefused` and no other exception."""
    request = validate(OllamaEmbedRequest, decode_object(body))
    work = Embed(
        dimensions=request.dimensions or 0,
        cut=0 if request.truncate is False else -1,
        is_list=not isinstance(request.input, str),
    )
    texts = [request.input] if isinstance(request.input, str) else request.input
    return embedding_request(request.model, texts, work, ResponseForm(notes=check_supported(request)))


def parse_embeddings(body: bytes) -> ChatRequest:
    """Parse the body of ``/api/embeddings``. Raises :class:`RequestRefused` and no other exception."""
    request = validate(OllamaEmbeddingsRequest, decode_object(body))
    form = ResponseForm(notes=check_supported(request))
    return embedding_request(request.model, [request.prompt], Embed(cut=-1, param="prompt"), form)


class EmbedEncoder(ResponseEncoder):
    """Encodes vectors, and how long they took in nanoseconds."""

    done = b""

    def __init__(self, request: ChatRequest, *, at: float) -> None:
        """``at`` is when the request was received (monotonic seconds)."""
        self._model, self._at = request.model, at

    def vectors(self, found: Sequence[Embedded], usage: Usage) -> bytes:
        about = {
            "model": self._model,
            "total_duration": round((time.monotonic() - self._at) * 1e9),
            "prompt_eval_count": usage.prompt_tokens,
        }
        items = b",".join(map(floats, split(found)))
        return b'{"embeddings":[%b],%b' % (items, msgspec.json.encode(about)[1:])


class EmbeddingsEncoder(EmbedEncoder):
    """Encodes the vector of one text."""

    def vectors(self, found: Sequence[Embedded], usage: Usage) -> bytes:
        return b'{"embedding":%b}' % next(map(floats, split(found)))
