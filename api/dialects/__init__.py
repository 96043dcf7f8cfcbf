"""The HTTP chat interfaces: thin translators around one request type and one event stream."""

from collections.abc import Callable, Collection

from api.dialects.azure import Azure
from api.dialects.interface import Dialect, Lookup
from api.dialects.openai import OpenAI
from api.dialects.ovms import ModelServer

_OPENAI = OpenAI()
_MODEL_SERVER = ModelServer()
_AZURE_ROOTS = ("chat", "info", "models")


def dialect_of(path: str, query: Lookup, headers: Lookup, serving: Callable[[], Collection[str]]) -> Dialect:
    """The dialect of one exchange, in which its errors are told too.

    ``serving`` returns the names of the models that workers serve now.
    """
    root = path.split("/", 2)[1]
    if root == "v3":
        return _MODEL_SERVER
    if root in _AZURE_ROOTS:
        return Azure(query, headers, serving())
    return _OPENAI
