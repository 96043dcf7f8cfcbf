"""Dialects, the public HTTP APIs: translators between HTTP bodies and the internal request and events.

Each folder has the routes of one API, which name the dialects that serve them. A new API is a folder and a line here.
"""

from api.dialects import anthropic, azure, ollama, openai, ovms, rerank, responses
from api.dialects.base.interface import Asked, Dialect
from api.dialects.base.routes import Route, models_route


class SharedModels(openai.OpenAI):
    """Of ``/v1/models``, which is OpenAI's and Anthropic's: only Anthropic's clients name a version of the API."""

    @classmethod
    def of(cls, asked: Asked) -> Dialect:
        versioned = asked.headers.get(anthropic.VERSION_HEADER) is not None
        return (anthropic.Anthropic if versioned else openai.OpenAI)(asked)


ROUTES: tuple[Route, ...] = (
    *openai.ROUTES,
    *responses.ROUTES,
    *anthropic.ROUTES,
    *ovms.ROUTES,
    *azure.ROUTES,
    *ollama.ROUTES,
    *rerank.ROUTES,
    models_route("/v1/models", "listModels", SharedModels),
)
"""The routes of all dialects. Handlers have those of what only one of them has."""

BATCHED = {route.path: route.batched for route in ROUTES if route.batched is not None}
"""The dialects of requests in batches, by their paths."""

_ROOTS = {root: route.dialect for route in ROUTES for root in route.dialect.roots}


def unrouted(path: str) -> type[Dialect]:
    """Return the dialect of a ``path`` that no route serves."""
    return next((found for root, found in _ROOTS.items() if f"{path}/".startswith(f"{root}/")), openai.OpenAI)
