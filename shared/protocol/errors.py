"""Errors of requests, which each dialect maps to its own statuses and bodies.

A :class:`Problem` is a message between processes; :class:`RequestRefused` is the exception that carries one.
"""

from enum import StrEnum

import msgspec


class ProblemKind(StrEnum):
    """Why a request was not served. Each dialect maps every kind to a status and an error body."""

    INVALID = "invalid_request"
    MODALITY = "modality_not_supported"
    CONTEXT_LENGTH = "context_length_exceeded"
    TEMPLATE = "template_error"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    RATE_LIMITED = "rate_limit_exceeded"
    TOKENS_LIMITED = "token_limit_exceeded"
    BUDGET = "insufficient_quota"
    MODEL_NOT_FOUND = "model_not_found"
    NOT_FOUND = "not_found"
    ROUTE_NOT_FOUND = "route_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    WRONG_HOST = "host_not_allowed"
    UNSUPPORTED_MEDIA = "unsupported_media_type"
    TOO_LARGE = "request_too_large"
    TIMEOUT = "request_timeout"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    NO_WORKER = "no_worker"
    STORE_UNAVAILABLE = "store_unavailable"
    SHUTTING_DOWN = "shutting_down"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    CACHE_EXHAUSTED = "kv_cache_exhausted"
    ENGINE_FAILED = "engine_failed"
    POISON = "engine_crash_loop"
    LOST = "answer_lost"
    CANCELLED = "cancelled"
    INTERNAL = "internal_error"


class ContextExcess(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request does not fit the context, for dialects with their own message. In tokens.

    ``prompt`` is a lower bound where a very long prompt was not counted to its end.
    """

    prompt: int
    completion: int = 1
    """Replicas of the last release read it."""
    limit: int
    """Prompt and completion together."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error to be reported to the client.

    ``param`` names the offending field in the dialect's own path form, ``code`` overrides the
    dialect's usual code for the kind, ``retry_after`` is in seconds.
    """

    kind: ProblemKind
    message: str
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None
    excess: ContextExcess | None = None
    """Set for :attr:`ProblemKind.CONTEXT_LENGTH` where the number of tokens is known."""


class RequestRefused(Exception):
    """The request ends with ``problem``. Raised while parsing, in admission and by response streams."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def refuse(
    kind: ProblemKind,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    retry_after: float | None = None,
) -> RequestRefused:
    """Return a :class:`RequestRefused` with a new problem."""
    return RequestRefused(Problem(kind=kind, message=message, param=param, code=code, retry_after=retry_after))


def context_exceeded(excess: ContextExcess, *, param: str = "messages", complete: bool = True) -> RequestRefused:
    """Return the refusal of a prompt that leaves no room for an output in the context, with OpenAI's message.

    ``param`` is "messages" or "prompt". ``complete`` is False if the prompt was not counted to its end.
    """
    count = str(excess.prompt) if complete else f"more than {excess.prompt}"
    message = (
        f"This model's maximum context length is {excess.limit} tokens. However, your {param} resulted in {count} "
        f"tokens. Please reduce the length of the {param}."
    )
    return RequestRefused(Problem(kind=ProblemKind.CONTEXT_LENGTH, message=message, param=param, excess=excess))


def logits_refused(param: str) -> RequestRefused:
    """Return the refusal of a field that needs the logits of a model, where a worker has no access to them."""
    message = (
        f"Unsupported parameter: '{param}' is not supported with this model: a worker has no access to its logits."
    )
    return refuse(ProblemKind.INVALID, message, param=param, code="unsupported_parameter")


def modality_refused(part_type: str, param: str) -> RequestRefused:
    """Return the :class:`RequestRefused` for a content part that the model can't read.

    ``param`` is the part's path, ``messages[0].content[1]``. The message and the form of the path in it are the OpenAI
    service's.
    """
    return refuse(
        ProblemKind.MODALITY,
        f"Invalid content type. {part_type} is only supported by certain models.",
        param=f"{param.replace('[', '.[')}.type",
    )
