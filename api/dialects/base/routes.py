"""Routes: a method and a path, the dialect that serves them, and what the OpenAPI document says about them."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from api.dialects.base.interface import Dialect

JSON = "application/json"


class Body(NamedTuple):
    """The JSON body of requests, for the OpenAPI document."""

    model: type[BaseModel]
    name: str = ""
    """The name of its schema; that of ``model`` if empty."""
    served: Collection[str] | None = None
    """The fields that are served; None: those that ``model`` does not refuse."""
    properties: Mapping[str, Any] = {}
    """Schemas of fields that replace those of ``model``."""
    required: Collection[str] | None = None
    """The required fields, if ``model`` does not know them."""


class Route(NamedTuple):
    """A method of HTTP and a path in Werkzeug's syntax."""

    method: str
    path: str
    operation: str
    """``operationId``."""
    dialect: type[Dialect]
    """Parses its requests, and encodes its responses and errors."""
    serves: Literal["", "chats", "embeddings", "models", "responses", "results"] = ""
    """What serves it: a worker a chat, vectors or results, a description of models, the Responses API; empty: the
    handler that has it."""
    summary: str = ""
    body: Body | None = None
    form: type[BaseModel] | None = None
    """Validates the form of an upload, without the file."""
    query: type[BaseModel] | None = None
    """Validates the query."""
    parameters: tuple[Mapping[str, Any], ...] = ()
    """Headers and other parameters, for the OpenAPI document."""
    returns: tuple[str, ...] = (JSON,)
    """Content types of a 200."""
    schema: str = ""
    """Name of the schema of a JSON response; any object without."""
    errors: tuple[int, ...] = ()
    """Statuses of errors, beyond those that every route may have."""
    batched: type[Dialect] | None = None
    """The dialect of its requests in batches, if they may be in one."""


def chat_route(path: str, operation: str, dialect: type[Dialect], body: Body, **more: Any) -> Route:
    """Return a route whose requests workers serve, streamed or not. ``more`` are fields of :class:`Route`."""
    types = {"returns": (JSON, dialect.stream_type), "errors": dialect.statuses}
    return Route("POST", path, operation, dialect, **{"serves": "chats", "body": body, **types, **more})


def embeddings_route(path: str, operation: str, dialect: type[Dialect], body: Body, **more: Any) -> Route:
    """Return a route whose requests workers serve with vectors or scores. ``more`` are fields of :class:`Route`."""
    given = {"serves": "embeddings", "body": body, "errors": dialect.statuses, "summary": "Compute vectors of texts."}
    return Route("POST", path, operation, dialect, **(given | more))


def results_route(path: str, operation: str, dialect: type[Dialect], method: str = "POST", **more: Any) -> Route:
    """Return a route whose requests workers serve with results that ``dialect.answer`` encodes. ``more`` are fields of
    :class:`Route`."""
    return Route(method, path, operation, dialect, **{"serves": "results", "errors": dialect.statuses, **more})


def models_route(path: str, operation: str, dialect: type[Dialect], method: str = "GET", **more: Any) -> Route:
    """Return a route that says something about models, as the docstring of ``dialect.models`` does. ``more`` are fields
    of :class:`Route`."""
    summary = " ".join((dialect.models.__doc__ or "").split()).partition(" Raises")[0]
    return Route(method, path, operation, dialect, **{"serves": "models", "summary": summary, "errors": (401,), **more})
