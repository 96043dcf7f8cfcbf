"""The interfaces, in the order of the page."""

from collections.abc import Callable, Mapping
from functools import partial

from pydantic import BaseModel

from api.dialects.anthropic import Anthropic
from api.dialects.anthropic.schema import MessagesRequest
from api.dialects.azure import Azure
from api.dialects.base.interface import Dialect
from api.dialects.openai import OpenAI, OpenAICompletions
from api.dialects.openai.extensions import ServedChatRequest, ServedCompletionRequest
from api.dialects.openai.tokens import parse_detokenize, parse_tokenize, render_text, render_tokens
from api.dialects.ovms import ModelServer, ModelServerCompletions
from api.dialects.ovms.responses import STORED_FIELDS, ModelServerResponses
from api.dialects.responses.schema import ResponsesRequest
from tests.compatibility.adapters import Batches, BatchRequests, Files, ModelServerTokens, Tokens, WithHistory
from tests.compatibility.refused import refused_rows
from tests.compatibility.rows import Answer, Interface, Request
from tests.compatibility.tables import read

_Dialect = Callable[[Mapping[str, str], Mapping[str, str]], Dialect]
_STORED = ("item_reference", "hosted tools")
_OTHERWISE = {*STORED_FIELDS, "length_penalty"}
"""What the model server refuses in another way, or serves, of the rows of OpenAI's responses."""


def _interface(
    name: str,
    dialect: _Dialect,
    *,
    schema: type[BaseModel] | None = None,
    requests: tuple[Request, ...] = (),
    answers: tuple[Answer, ...] = (),
) -> Interface:
    """Return the interface whose rows are in a file, and these; ``schema`` marks more fields that are refused."""
    head, written, described = read(name)
    refused = refused_rows(schema, written) if schema is not None else ()
    return Interface(**head, dialect=dialect, requests=(*written, *refused, *requests), answers=(*described, *answers))


CHAT = _interface("openai_chat", lambda query, headers: OpenAI(), schema=ServedChatRequest)
COMPLETIONS = _interface(
    "openai_completions", lambda query, headers: OpenAICompletions(), schema=ServedCompletionRequest
)
RESPONSES = _interface("openai_responses", lambda query, headers: WithHistory(), schema=ResponsesRequest)
FILES = _interface("openai_files", lambda query, headers: Files(query))
BATCHES = _interface("openai_batches", lambda query, headers: Batches(query))
AZURE = _interface("azure", lambda query, headers: Azure(query, headers, lambda: ("m",)))
INTERFACES = (
    CHAT,
    COMPLETIONS,
    _interface("vllm_tokenize", lambda query, headers: Tokens(partial(parse_tokenize, served=("m",)), render_tokens)),
    _interface("vllm_detokenize", lambda query, headers: Tokens(parse_detokenize, render_text)),
    RESPONSES,
    FILES,
    BATCHES,
    _interface("openai_batch_requests", lambda query, headers: BatchRequests(query)),
    _interface("anthropic", lambda query, headers: Anthropic(headers), schema=MessagesRequest),
    _interface("ovms_chat", lambda query, headers: ModelServer()),
    _interface("ovms_completions", lambda query, headers: ModelServerCompletions()),
    _interface("ovms_tokenize", lambda query, headers: ModelServerTokens()),
    _interface(
        "ovms_responses",
        lambda query, headers: ModelServerResponses(),
        requests=tuple(row for row in RESPONSES.requests if not _OTHERWISE & {*row.paths} and row.when not in _STORED),
        answers=RESPONSES.answers,
    ),
    AZURE,
)
