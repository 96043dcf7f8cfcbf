"""Anthropic's dialect: what its bodies become, and what it refuses."""

import json

import pytest

from api.dialects.anthropic.errors import UNTHREADED
from shared.protocol.errors import ContextExcess, Problem, ProblemKind, RequestRefused
from tests.support.dialects import DIALECTS
from tests.support.sdk_types import anthropic_types

USER = {"role": "user", "content": "Hello"}
DIALECT = DIALECTS["anthropic"].make()


def test_a_refused_thread_has_the_references_code() -> None:
    body = {"model": "m", "max_tokens": 5, "messages": [USER], "thread": {"type": "create"}}
    with pytest.raises(RequestRefused) as refusal:
        DIALECT.parse(json.dumps(body).encode())
    error = json.loads(DIALECT.error(refusal.value.problem).body)["error"]
    assert (
        anthropic_types().ThreadUnsupportedRequestErrorDetails.model_validate(error["details"]).error_code == UNTHREADED
    )
    assert error.keys() == {"type", "message", "details"}


@pytest.mark.parametrize(
    ("excess", "message"),
    [
        (ContextExcess(prompt=9000, limit=8192), "prompt is too long: 9000 tokens > 8192 maximum"),
        (ContextExcess(prompt=8192, limit=8192), "prompt is too long: 8193 tokens > 8192 maximum"),
        (None, "prompt is too long: why"),
    ],
)
def test_a_prompt_that_is_too_long_is_reported_in_the_references_words(
    excess: ContextExcess | None, message: str
) -> None:
    problem = Problem(kind=ProblemKind.CONTEXT_LENGTH, message="why", param="messages", excess=excess)
    reply = DIALECT.error(problem)
    error = {"type": "invalid_request_error", "message": message}
    assert (reply.status, json.loads(reply.body)["error"]) == (400, error)
