"""The interfaces, in the order of the page."""

from collections.abc import Callable, Mapping
from functools import partial

from pydantic import BaseModel

from api.dialects.anthropic.schema import MessagesRequest
from api.dialects.base.interface import Dialect
from api.dialects.openai.extensions import ServedChatRequest, ServedCompletionRequest
from api.dialects.openai.tokens import Texts
from api.dialects.openai.tokens import Tokens as OpenAITokens
from api.dialects.ovms.responses import STORED_FIELDS
from api.dialects.ovms.tokens import ModelServerTokens
from api.dialects.responses.schema import ResponsesRequest
from tests.compatibility.adapters import Batches, BatchRequests, Files, Tokens, WithHistory
from tests.compatibility.refused import refused_rows
from tests.compatibility.rows import Answer, Interface, Request
from tests.compatibility.tables import read
from tests.support.dialects import DIALECTS, Tried

_Dialect = Callable[[Mapping[str, str], Mapping[str, str]], Dialect]
_STORED = ("item_reference", "hosted tools")
_OTHERWISE = {*STORED_FIELDS, "length_penalty"}
"""What the model server refuses in another way, or serves, of the rows of OpenAI's responses."""


def _made(tried: Tried, query: Mapping[str, str], headers: Mapping[str, str]) -> Dialect:
    return tried.make(query=query, headers=headers)


def _interface(
    name: str,
    dialect: _Dialect | None = None,
    *,
    schema: type[BaseModel] | None = None,
    requests: tuple[Request, ...] = (),
    answers: tuple[Answer, ...] = (),
) -> Interface:
    """Return the interface whose rows are in a file, and these; ``schema`` marks more fields that are refused.

    Without ``dialect``, it is the one of the interface's route.
    """
    head, written, described = read(name)
    dialect = dialect or _routed[head["route"]]
    refused = refused_rows(schema, written) if schema is not None else ()
    return Interface(**head, dialect=dialect, requests=(*written, *refused, *requests), answers=(*described, *answers))


_routed: Mapping[str, _Dialect] = {f"POST {tried.route.path}": partial(_made, tried) for tried in DIALECTS.values()}
CHAT = _interface("openai_chat", schema=ServedChatRequest)
COMPLETIONS = _interface("openai_completions", schema=ServedCompletionRequest)
RESPONSES = _interface("openai_responses", lambda query, headers: WithHistory(), schema=ResponsesRequest)
FILES = _interface("openai_files", lambda query, headers: Files(query))
BATCHES = _interface("openai_batches", lambda query, headers: Batches(query))
AZURE = _interface("azure")
INTERFACES = (
    CHAT,
    COMPLETIONS,
    _interface("vllm_tokenize", lambda query, headers: Tokens(OpenAITokens)),
    _interface("vllm_detokenize", lambda query, headers: Tokens(Texts)),
    RESPONSES,
    FILES,
    BATCHES,
    _interface("openai_batch_requests", lambda query, headers: BatchRequests(query)),
    _interface("anthropic", schema=MessagesRequest),
    _interface("ovms_chat"),
    _interface("ovms_completions"),
    _interface("ovms_tokenize", lambda query, headers: Tokens(ModelServerTokens)),
    _interface(
        "ovms_responses",
        requests=tuple(row for row in RESPONSES.requests if not _OTHERWISE & {*row.paths} and row.when not in _STORED),
        answers=RESPONSES.answers,
    ),
    AZURE,
    _interface("ollama_chat"),
    _interface("ollama_generate"),
)
