"""Dialects, the public HTTP APIs: translators between HTTP bodies and the internal request and events."""

from collections.abc import Callable, Collection

from api.dialects.anthropic import VERSION_HEADER, Anthropic
from api.dialects.azure import Azure
from api.dialects.base.interface import Dialect, Lookup
from api.dialects.openai import OpenAI, OpenAICompletions
from api.dialects.ovms import ModelServer, ModelServerCompletions
from api.dialects.ovms.responses import ModelServerResponses
from api.dialects.responses import Responses

_OPENAI = OpenAI()
_OPENAI_COMPLETIONS = OpenAICompletions()
_MODEL_SERVER = ModelServer()
_MODEL_SERVER_COMPLETIONS = ModelServerCompletions()
_MESSAGES = "/v1/messages"
_MODELS = "/v1/models"
"""OpenAI's and Anthropic's: only Anthropic's clients name a version of the API."""
_RESPONSES = "/v1/responses"
_AZURE_ROOTS = ("chat", "info", "models")
_ROUTER = ("/models/load", "/models/unload")
"""llama.cpp's, whose errors have OpenAI's form."""


def dialect_of(
    path: str,
    query: Lookup,
    headers: Lookup,
    serving: Callable[[], Collection[str]],
    own_name: Callable[[str], str] = str,
    request_id: str = "",
    deployment: str | None = None,
) -> Dialect:
    """Return the dialect of one HTTP exchange; it also encodes the errors of that exchange.

    ``serving`` returns the names of the models that workers serve now. ``own_name`` resolves an alias to a model name.
    ``request_id`` is the id of the exchange, ``deployment`` the model in the path of an Azure OpenAI client.
    """
    _, root, *_ = f"{path}/".split("/", 2)
    if path == "/v3/responses":
        return ModelServerResponses()
    if root == "v3":
        return _MODEL_SERVER_COMPLETIONS if path == "/v3/completions" else _MODEL_SERVER
    if root in _AZURE_ROOTS and path not in _ROUTER:
        return Azure(query, headers, serving, own_name)
    if path == "/v1/completions":
        return _OPENAI_COMPLETIONS if deployment is None else OpenAICompletions(deployment)
    if path.startswith(_MESSAGES) or (path.startswith(_MODELS) and headers.get(VERSION_HEADER) is not None):
        return Anthropic(headers, request_id)
    if path.startswith(_RESPONSES):
        return Responses()
    return _OPENAI if deployment is None else OpenAI(deployment)
