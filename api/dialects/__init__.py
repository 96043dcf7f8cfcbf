"""The HTTP chat interfaces: thin translators around one request type and one event stream."""

from api.dialects.interface import Dialect
from api.dialects.openai import OpenAI

_OPENAI = OpenAI()


def dialect_of(path: str) -> Dialect:
    """The dialect that speaks under ``path``; also the one in which errors there are told."""
    del path
    return _OPENAI
