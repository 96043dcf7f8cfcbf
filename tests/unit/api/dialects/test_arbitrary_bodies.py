"""A fuzzer for all dialects: every body is a request or a clean refusal."""

import json
from collections.abc import Callable, Mapping

from hypothesis import given, note
from hypothesis import strategies as st

from api.dialects.anthropic import Anthropic
from api.dialects.azure import Azure
from api.dialects.base.interface import Dialect
from api.dialects.openai import OpenAI, OpenAICompletions
from api.dialects.openai.completions_schema import CompletionRequest
from api.dialects.openai.extended import ExtendedChatRequest
from api.dialects.ovms import ModelServer, ModelServerCompletions
from api.dialects.responses import Responses
from api.dialects.responses.schema import ResponsesRequest
from shared.protocol.errors import Problem, RequestRefused
from shared.protocol.request import ChatRequest, decode_request, encode_request

_QUERY = {"api-version": "2024-05-01"}
CHATS: dict[str, Callable[[], Dialect]] = {
    "openai": OpenAI,
    "anthropic": lambda: Anthropic({}, "req_1"),
    "model server": ModelServer,
    "azure": lambda: Azure(_QUERY, {}, lambda: ("m",)),
    "azure, extras passed": lambda: Azure(_QUERY, {"extra-parameters": "pass-through"}, lambda: ("m",)),
    "azure, extras dropped": lambda: Azure(_QUERY, {"extra-parameters": "drop"}, lambda: ("m", "n")),
}
COMPLETIONS: dict[str, Callable[[], Dialect]] = {
    "openai": OpenAICompletions,
    "model server": ModelServerCompletions,
}

_WORDS = st.sampled_from(
    ["role", "content", "type", "text", "user", "tool", "assistant", "image_url", "name", "json_schema", "schema"]
)
_NUMBERS = st.integers(-2, 3) | st.integers() | st.floats()
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _WORDS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS | st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
_MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "name", "tool_call_id"]), _JSON, max_size=4)
    | st.just({"role": "user", "content": "Hello"}),
    max_size=3,
)
_FIELDS = st.dictionaries(
    st.sampled_from(sorted(ExtendedChatRequest.model_fields)) | st.text(max_size=5), _JSON, max_size=4
)


@given(_FIELDS, _MESSAGES | _JSON)
def test_any_body_is_a_request_or_a_refusal(fields: dict[str, object], messages: object) -> None:
    _check(CHATS, json.dumps({"model": "m", "max_tokens": 5, "messages": messages} | fields).encode())


@given(
    st.dictionaries(st.sampled_from(sorted(CompletionRequest.model_fields)), _JSON, max_size=4), st.just("Once") | _JSON
)
def test_any_body_of_a_completion_is_a_request_or_a_refusal(fields: dict[str, object], prompt: object) -> None:
    _check(COMPLETIONS, json.dumps({"model": "m", "prompt": prompt} | fields).encode())


def _check(dialects: Mapping[str, Callable[[], Dialect]], raw: bytes) -> None:
    for name, make in dialects.items():
        note(name)
        dialect = make()
        request, problem = _outcome(dialect, raw)
        if problem is not None:
            reply = dialect.error(problem)
            assert 400 <= reply.status < 500
            reported = json.loads(reply.body)
            assert problem.message in (reported["message"] if "message" in reported else reported["error"]["message"])
        if request is not None:
            assert decode_request(encode_request(request)) == request
            dialect.render(request, response_id="a", created=1, fingerprint="").opening(0)


def _outcome(dialect: Dialect, raw: bytes) -> tuple[ChatRequest | None, Problem | None]:
    try:
        return dialect.parse(raw), None
    except RequestRefused as refusal:
        return None, refusal.problem


_ITEMS = st.lists(
    st.dictionaries(
        st.sampled_from(
            ["type", "role", "content", "call_id", "name", "arguments", "output", "summary", "id", "tools"]
        ),
        _JSON | st.sampled_from(["function_call", "function_call_output", "reasoning", "message", "additional_tools"]),
        max_size=5,
    )
    | st.just({"role": "user", "content": "Hello"}),
    max_size=4,
)


@given(
    st.dictionaries(st.sampled_from(sorted(ResponsesRequest.model_fields)) | st.text(max_size=5), _JSON, max_size=4),
    _ITEMS | _JSON,
)
def test_any_body_of_the_responses_api_is_a_request_or_a_refusal(fields: dict[str, object], items: object) -> None:
    _check({"responses": Responses}, json.dumps({"model": "m", "input": items} | fields).encode())
