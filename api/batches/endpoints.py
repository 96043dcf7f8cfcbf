"""The endpoints of batches."""

from collections.abc import Callable
from typing import Literal, get_args

from api.dialects.base.interface import Dialect
from api.dialects.openai import OpenAI, OpenAICompletions
from api.dialects.responses import Responses

Endpoint = Literal[
    "/v1/responses",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/completions",
    "/v1/moderations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/videos",
]
"""The endpoints that OpenAI's service accepts."""

DIALECTS: dict[str, Callable[[], Dialect]] = {
    "/v1/chat/completions": OpenAI,
    "/v1/completions": OpenAICompletions,
    "/v1/responses": lambda: Responses(stores=False),
}
"""The endpoints that are served, and the dialects of their requests. Only chat completions are stored: other results
are in the result files alone."""

assert DIALECTS.keys() <= set(get_args(Endpoint))
