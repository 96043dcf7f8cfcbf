"""The dialects as tests use them: one for each dialect of :data:`api.dialects.ROUTES` whose requests workers serve.

A dialect that has no entry in :data:`_KNOWN` fails the tests that import this.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from api.dialects import ROUTES
from api.dialects.base.interface import Asked, Dialect, NoModels
from api.dialects.base.routes import Route

VERSIONS = {"api-version": "2024-05-01-preview"}


class Serving(NoModels):
    """Models that workers serve."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def serving(self) -> Collection[str]:
        return self._names


class Known(NamedTuple):
    """What tests know of a dialect."""

    name: str
    """That of its files of cases."""
    text: str
    """The field with the conversation or the text."""
    limit: str = "max_tokens"
    """The field with the maximum number of tokens."""
    plain: Mapping[str, Any] = {}
    """What else the smallest body has."""
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    options: str = ""
    """The field with the sampling parameters, if they have an object of their own."""
    chats: bool = True
    """Whether it has messages and tools."""


_KNOWN = {
    "/v1/chat/completions": Known("chat", "messages"),
    "/v1/completions": Known("completions", "prompt", chats=False),
    "/v1/responses": Known("responses", "input", "max_output_tokens"),
    "/v1/messages": Known(
        "anthropic", "messages", plain={"max_tokens": 100_000}, headers={"anthropic-version": "2023-06-01"}
    ),
    "/v3/chat/completions": Known("ovms_chat", "messages"),
    "/v3/completions": Known("ovms_completions", "prompt", chats=False),
    "/v3/responses": Known("ovms_responses", "input", "max_output_tokens"),
    "/chat/completions": Known("azure", "messages", query=VERSIONS),
    "/api/chat": Known("ollama_chat", "messages", "num_predict", options="options"),
    "/api/generate": Known("ollama_generate", "prompt", "num_predict", options="options", chats=False),
}


class Tried(NamedTuple):
    """A dialect with a route."""

    route: Route
    known: Known

    @property
    def path(self) -> str:
        """The path with its query."""
        query = "&".join(f"{name}={value}" for name, value in self.known.query.items())
        return f"{self.route.path}?{query}" if query else self.route.path

    def make(
        self,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        serving: Sequence[str] = ("m",),
    ) -> Dialect:
        """Return the dialect of one request."""
        asked = Asked(
            headers=self.known.headers if headers is None else headers,
            query=self.known.query if query is None else query,
            id="req_1",
            fleet=Serving(*serving),
        )
        return self.route.dialect.of(asked)

    def body(self, text: str, model: str = "m", **sampling: Any) -> dict[str, Any]:
        """Return a body with a text."""
        said: object = text if self.known.text != "messages" else [{"role": "user", "content": text}]
        options = {self.known.options: sampling} if self.known.options and sampling else sampling
        return {"model": model, self.known.text: said, **self.known.plain, **options}


_BY_DIALECT = {route.dialect: route for route in reversed(ROUTES) if route.serves in ("chats", "responses")}
DIALECTS = {(known := _KNOWN[route.path]).name: Tried(route, known) for route in reversed(_BY_DIALECT.values())}
CHATS = [tried for tried in DIALECTS.values() if tried.known.chats]
"""Those with messages and tools."""
