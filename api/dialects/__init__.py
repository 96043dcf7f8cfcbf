"""The HTTP chat interfaces: thin translators around one request type and one event stream."""

from collections.abc import Callable, Collection

from api.dialects.azure import Azure
from api.dialects.interface import Dialect, Lookup
from api.dialects.openai import OpenAI
from api.dialects.openai.completions import OpenAICompletions
from api.dialects.ovms import ModelServer, ModelServerCompletions

_OPENAI = OpenAI()
_OPENAI_COMPLETIONS = OpenAICompletions()
_MODEL_SERVER = ModelServer()
_MODEL_SERVER_COMPLETIONS = ModelServerCompletions()
_AZURE_ROOTS = ("chat", "info", "models")


def dialect_of(
    path: str,
    query: Lookup,
    headers: Lookup,
    serving: Callable[[], Collection[str]],
    own_name: Callable[[str], str] = str,
) -> Dialect:
    """The dialect of one exchange, in which its errors are told too.

    ``serving`` returns the own names of the models that workers serve now, ``own_name`` that of an alias.
    """
    root = path.split("/", 2)[1]
    if root == "v3":
        return _MODEL_SERVER_COMPLETIONS if path == "/v3/completions" else _MODEL_SERVER
    if root in _AZURE_ROOTS:
        return Azure(query, headers, serving, own_name)
    if path == "/v1/completions":
        return _OPENAI_COMPLETIONS
    return _OPENAI
