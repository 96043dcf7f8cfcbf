"""Schemas and parsers of requests that compare texts: those of Cohere, and of vLLM."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from api.dialects.base.body import decode_object
from api.dialects.base.fields import ByType, History, Items, NonEmptyText, Strict
from api.dialects.base.sampling import MAX_COUNT
from api.dialects.base.unsupported import Ignored, Refused, check_supported
from api.dialects.base.validation import invalid, missing, validate
from api.dialects.openai.completions_schema import MAX_PROMPTS
from api.dialects.openai.embeddings import Truncation, embedding_request
from shared.protocol.request import ChatRequest, Rerank, ResponseForm

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Texts = Annotated[
    str | Annotated[Items[str], Field(min_length=1, max_length=MAX_PROMPTS)],
    ByType("one of a string or array of strings"),
]


class Document(History):
    """A document with other fields than its text, which have no effect."""

    text: str


class _Compared(Strict):
    model: NonEmptyText
    user: str | None = None
    truncate_prompt_tokens: Truncation | None = None
    use_activation: bool | None = None
    priority: Annotated[int | None, Ignored()] = None


class RerankRequest(_Compared):
    """The body of a rerank request."""

    zero_is_all: ClassVar[bool] = True
    """Whether a ``top_n`` of 0 means all documents."""

    query: str
    documents: Annotated[
        Items[Annotated[str | Document, ByType("one of a string or object")]],
        Field(min_length=1, max_length=MAX_PROMPTS),
    ]
    top_n: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    return_documents: bool | None = None
    max_chunks_per_doc: Count | None = None
    max_tokens_per_doc: Count | None = None
    rank_fields: Annotated[list[str] | None, Refused("Documents are read by their text.", neutral=(["text"],))] = None
    relevant_spans: Annotated[dict[str, object] | None, Refused("Documents are compared as a whole.")] = None


_NAMES = (("text_1", "text_2"), ("data_1", "data_2"), ("queries", "documents"), ("queries", "items"))


class ScoreRequest(_Compared):
    """The body of a request for scores. The two texts, or lists of texts, have one of four pairs of names."""

    text_1: Texts | None = None
    text_2: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None


def parse_rerank(
    body: bytes,
    *,
    form: type[RerankRequest] = RerankRequest,
    chunks: int = 0,
    activation: Literal["model", "sigmoid"] = "model",
    documents: bool = True,
) -> ChatRequest:
    """Parse a rerank request. Raises :class:`RequestRefused` and no other exception.

    ``chunks`` and ``documents`` are the interface's default of how many parts of a document are read, and of whether
    the response contains the documents.
    """
    request = validate(form, decode_object(body))
    cut = request.truncate_prompt_tokens or 0
    work = Rerank(
        queries=(request.query,),
        cut=cut,
        chunks=1 if cut or request.max_tokens_per_doc else request.max_chunks_per_doc or chunks,
        document_tokens=request.max_tokens_per_doc or 0,
        param="documents",
        is_list=True,
    )
    answer = ResponseForm(
        top=None if request.top_n == 0 and form.zero_is_all else request.top_n,
        documents=documents if request.return_documents is None else request.return_documents,
        activation="none" if request.use_activation is False else activation,
        notes=check_supported(request),
    )
    texts = [one if isinstance(one, str) else one.text for one in request.documents]
    return embedding_request(request.model, texts, work, answer)


def parse_scores(body: bytes) -> ChatRequest:
    """Parse a request for scores. Raises :class:`RequestRefused` and no other exception."""
    request = validate(ScoreRequest, decode_object(body))
    given = {name: value for pair in _NAMES for name in pair if (value := getattr(request, name)) is not None}
    first, second = max(_NAMES, key=lambda pair: sum(name in given for name in pair))
    for name in (first, second):
        if name not in given:
            raise missing(name)
    for name in given.keys() - {first, second}:
        raise invalid(name, f"it can't be combined with '{first}'")
    queries, texts = ((one,) if isinstance(one, str) else tuple(one) for one in (given[first], given[second]))
    if len(queries) not in (1, len(texts)):
        raise invalid(first, f"it has {len(queries)} texts. Expected one, or as many as in '{second}': {len(texts)}")
    cut, several = request.truncate_prompt_tokens or 0, not isinstance(given[second], str)
    work = Rerank(queries=queries, cut=cut, chunks=1 if cut else 0, param=second, query_param=first, is_list=several)
    form = ResponseForm(
        activation="none" if request.use_activation is False else "model", notes=check_supported(request)
    )
    return embedding_request(request.model, texts, work, form)
