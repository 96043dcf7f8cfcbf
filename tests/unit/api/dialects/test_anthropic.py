"""Anthropic's dialect: what its bodies become, and what it refuses."""

import json
from typing import Any

import pytest
from anthropic.types import MessageCreateParams, ThreadUnsupportedRequestErrorDetails

from api.dialects.anthropic import Anthropic
from api.dialects.anthropic.errors import UNTHREADED
from api.dialects.anthropic.schema import MAX_STOP_SEQUENCES, MessagesRequest
from shared.protocol.errors import ContextExcess, Problem, ProblemKind, RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Image, Message, Sampling, Tokenization, Tool, ToolCall

USER = {"role": "user", "content": "Hello"}
TOOL = {"name": "f", "description": "Does it.", "input_schema": {"type": "object", "properties": {}}}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
CALLED = {"role": "assistant", "content": [CALL]}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "42"}
DEFERRED = TOOL | {"name": "later", "defer_loading": True}
REFERENCE = {"type": "tool_reference", "tool_name": "later", "cache_control": {"type": "ephemeral"}}
PICTURE: dict[str, Any] = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
FILE_PICTURE = PICTURE | {"source": {"type": "file", "file_id": "f"}}
DOCUMENT: dict[str, Any] = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "The grass is green."},
}
FOUND = {
    "type": "search_result",
    "source": "https://example.com/grass",
    "title": "Grass",
    "content": [{"type": "text", "text": "It is green."}, {"type": "text", "text": "It grows."}],
    "citations": {"enabled": False},
}
PICTURE_URL = "data:image/png;base64,AAAA"
DIALECT = Anthropic({"anthropic-version": "2023-06-01"}, "req_1")


def parse(**fields: Any) -> ChatRequest:
    return DIALECT.parse(json.dumps({"model": "m", "max_tokens": 5, "messages": [USER]} | fields).encode())


def error_of(dialect: Anthropic = DIALECT, **fields: Any) -> tuple[int, str, str]:
    """Return status, type and message of the error that a request gets."""
    body = {"model": "m", "max_tokens": 5, "messages": [USER]} | fields
    with pytest.raises(RequestRefused) as refusal:
        dialect.parse(json.dumps({name: value for name, value in body.items() if value is not ...}).encode())
    reply = dialect.error(refusal.value.problem)
    document = json.loads(reply.body)
    assert (document["type"], document["request_id"]) == ("error", "req_1" if dialect is DIALECT else "")
    return reply.status, document["error"]["type"], document["error"]["message"]


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def test_a_plain_request_has_the_references_defaults() -> None:
    assert parse() == ChatRequest(
        model="m",
        messages=(Message(role="user", content="Hello"),),
        sampling=Sampling(max_tokens=5),
        defaults=Sampling(temperature=1.0, top_p=1.0, top_k=0),
        cut_at_context=True,
    )


@pytest.mark.parametrize(
    ("fields", "internal"),
    [
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 7}, {"sampling": {"temperature": 0.5, "top_p": 0.9, "top_k": 7}}),
        ({"temperature": 1, "top_p": 0}, {"sampling": {"temperature": 0.0}}),
        ({"stop_sequences": ["a", "b"]}, {"sampling": {"stop": ("a", "b")}}),
        ({"stream": True}, {"stream": True}),
        ({"metadata": {"user_id": "u"}}, {"user": "u"}),
        ({"service_tier": "auto"}, {"tier": "auto"}),
        ({"service_tier": "standard_only"}, {"tier": "default"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"template": {"enable_thinking": True}}),
        ({"thinking": {"type": "adaptive"}}, {"template": {"enable_thinking": True}}),
        ({"thinking": {"type": "disabled"}}, {"template": {"enable_thinking": False}}),
        ({"output_config": {"effort": "max"}}, {"template": {"reasoning_effort": "high"}}),
        ({"cache_control": {"type": "ephemeral", "ttl": "1h"}, "speed": "standard", "fallbacks": "default"}, {}),
        ({"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "scope": "global"}}]}, {}),
        ({"billing_policy": {"type": "billing_policy", "bill_to": "self"}}, {}),
        ({"thinking": {"type": "adaptive", "block_binding": {}}}, {"template": {"enable_thinking": True}}),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, {}),
    ],
)
def test_fields_of_a_request(fields: dict[str, Any], internal: dict[str, Any]) -> None:
    """max_tokens model messages and the rest."""
    request = parse(**fields)
    sampling = Sampling(max_tokens=5, **internal.pop("sampling", {}))
    assert request.sampling == sampling
    template = json.loads(request.template_kwargs or "{}")
    assert internal.pop("template", {}).items() <= template.items()
    assert {name: getattr(request, name) for name in internal} == internal


def test_output_config_format_is_a_constraint() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "schema": schema}
    for fields, param in (
        ({"output_config": {"format": form}}, "output_config.format"),
        ({"output_config": {"effort": "low"}, "output_format": form}, "output_format"),
    ):
        request = parse(**fields)
        assert request.constraint is not None
        assert request.constraint == Constraint(kind="json_schema", value=request.constraint.value, param=param)
        assert json.loads(request.constraint.value) == schema
    assert error_of(output_config={"format": form}, output_format=form)[2].startswith("output_format: ")


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("Be kind.", "Be kind."),
        ([{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief."}], "Be kind.\nBe brief."),
        (
            [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=0f3a"},
                {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}},
            ],
            "Be kind.",
        ),
        ("", None),
        ([{"type": "text", "text": "x-anthropic-billing-header: cch=0f3a"}], None),
    ],
)
def test_the_system_prompt(system: Any, text: str | None) -> None:
    messages = parse(system=system).messages
    assert messages[:-1] == (() if text is None else (Message(role="system", content=text),))


def test_a_conversation_with_tool_use_and_images() -> None:
    messages = [
        user(
            {"type": "text", "text": "One"}, {"type": "text", "text": "two"}, PICTURE, {"type": "text", "text": "three"}
        ),
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                CALL,
            ],
        },
        user(RESULT | {"content": [{"type": "text", "text": "4"}, PICTURE, {"type": "text", "text": "2"}]}),
        {"role": "assistant", "content": "So."},
        {"role": "system", "content": "Be brief."},
        user({"type": "image", "source": {"type": "url", "url": "https://host/a.png"}}),
    ]
    assert parse(messages=messages).messages == (
        Message(
            role="user", content="One\ntwothree", images=(Image(at=7, param="messages[0].content[2]", url=PICTURE_URL),)
        ),
        Message(
            role="assistant",
            content="I look.",
            reasoning="Hm.",
            tool_calls=(ToolCall(id="t1", name="f", arguments='{"a":1}'),),
        ),
        Message(role="tool", content="4\n2", name="f", tool_call_id="t1"),
        Message(role="user", images=(Image(param="messages[2].content[0]", url=PICTURE_URL),)),
        Message(role="assistant", content="So."),
        Message(role="system", content="Be brief."),
        Message(role="user", images=(Image(param="messages[5].content[0]", url="https://host/a.png"),)),
    )


def test_results_of_tool_use_come_before_what_the_user_says() -> None:
    said = user({"type": "text", "text": "Go on."}, RESULT | {"is_error": True})
    assert parse(messages=[USER, CALLED, said]).messages[2:] == (
        Message(role="tool", content="Error: 42", name="f", tool_call_id="t1"),
        Message(role="user", content="Go on."),
    )


def test_documents_and_search_results_are_text() -> None:
    about = {"title": "Lawn", "context": "From a book.", "citations": {"enabled": False}}
    parts = [{"type": "text", "text": "See:"}, PICTURE]
    pictured = {"type": "document", "source": {"type": "content", "content": parts}}
    plain = {"type": "document", "source": {"type": "content", "content": "Short."}}
    request = parse(
        messages=[
            user({"type": "text", "text": "Read this."}, DOCUMENT | about, pictured, plain),
            CALLED,
            user(RESULT | {"content": [FOUND, pictured]}),
        ]
    )
    lawn = "<title>Lawn</title>\n<context>From a book.</context>\nThe grass is green."
    first, _, result, rest = request.messages
    assert first.content == (
        f"Read this.\n<document>\n{lawn}\n</document>\n<document>\nSee:</document>\n<document>\nShort.\n</document>"
    )
    (image,) = first.images
    assert (first.content[image.at :][:11], image.param) == ("</document>", "messages[0].content[2]")
    assert result.content == (
        "<search_result>\n<source>https://example.com/grass</source>\n<title>Grass</title>\nIt is green.\nIt grows.\n"
        "</search_result>\n<document>\nSee:\n</document>"
    )
    assert (rest.content, len(rest.images)) == ("", 1)


@pytest.mark.parametrize(
    ("choice", "mode", "named", "parallel"),
    [
        (None, "auto", None, True),
        ({"type": "auto"}, "auto", None, True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", None, False),
        ({"type": "any"}, "required", None, True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", None, False),
        ({"type": "tool", "name": "f"}, "required", "f", False),
        ({"type": "none"}, "none", None, True),
    ],
)
def test_tool_choice(choice: Any, mode: str, named: str | None, parallel: bool) -> None:
    request = parse(tools=[TOOL | {"strict": True, "type": "custom"}], tool_choice=choice)
    assert (request.tool_choice, request.named_tool, request.parallel_tool_calls) == (mode, named, parallel)
    parameters = '{"type":"object","properties":{}}'
    assert request.tools == (Tool(name="f", description="Does it.", parameters=parameters, strict=True),)


def test_deferred_tools_are_loaded_by_references() -> None:
    tools = [DEFERRED | {"name": "never"}, DEFERRED, TOOL]
    assert [tool.name for tool in parse(tools=tools).tools] == ["f"]
    found = [CALLED, user(RESULT | {"content": [REFERENCE, REFERENCE]}), USER]
    request = parse(tools=tools, messages=found, tool_choice={"type": "tool", "name": "later"})
    assert [tool.name for tool in request.tools] == ["f", "later"]
    assert request.named_tool == "later"
    assert request.messages[1].content == "\n".join(["<tool_reference>later</tool_reference>"] * 2)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"model": ...}, "model"),
        ({"max_tokens": ...}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [USER, {"role": "assistant", "content": "The best answer is ("}]}, "messages.1"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages.0.role"),
        ({"messages": [user({"type": "container_upload", "file_id": "f"})]}, "messages.0.content.0.type"),
        *(
            ({"messages": [user({"type": "document", "source": source})]}, "messages.0.content.0.source.type")
            for source in (
                {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
                {"type": "url", "url": "https://example.com/a.pdf"},
                {"type": "file", "file_id": "f"},
            )
        ),
        (
            {"messages": [CALLED, user(RESULT | {"content": [DOCUMENT | {"citations": {"enabled": True}}]})]},
            "messages.1.content.0.content.0.citations.enabled",
        ),
        ({"messages": [user(FOUND | {"citations": {"enabled": True}})]}, "messages.0.content.0.citations.enabled"),
        (
            {"messages": [user({"type": "document", "source": {"type": "content", "content": [FILE_PICTURE]}})]},
            "messages.0.content.0.source.content.0.source.type",
        ),
        ({"messages": [CALLED, user(RESULT | {"toolset_name": "browser"})]}, "messages.1.content.0.toolset_name"),
        ({"messages": [user(RESULT)]}, "messages.0.content.0"),
        ({"messages": [CALLED, USER]}, "messages.0"),
        ({"messages": [CALLED, user(RESULT), CALLED, user(RESULT)]}, "messages.2"),
        ({"messages": [CALLED, user(RESULT, RESULT)]}, "messages.1.content.1"),
        ({"tools": [TOOL, TOOL]}, "tools.1.name"),
        (
            {"messages": [user(PICTURE | {"source": {"type": "file", "file_id": "f"}})]},
            "messages.0.content.0.source.type",
        ),
        (
            {"messages": [user(PICTURE | {"source": PICTURE["source"] | {"media_type": "image/bmp"}})]},
            "messages.0.content.0.source.media_type",
        ),
        (
            {"messages": [user(PICTURE | {"source": {"type": "url", "url": "file:///etc/passwd"}})]},
            "messages.0.content.0",
        ),
        (
            {"messages": [user({"type": "text", "text": "", "citations": [{}]})]},
            "messages.0.content.0.citations",
        ),
        ({"temperature": 1.5}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences.0"),
        ({"stop_sequences": ["a"] * (MAX_STOP_SEQUENCES + 1)}, "stop_sequences"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}]}, "tools.0.type"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
        ({"tools": [TOOL | {"input_schema": {"type": "array"}}]}, "tools.0.input_schema"),
        ({"tools": [TOOL | {"defer_loading": True}]}, "tools"),
        (
            {"tools": [TOOL, DEFERRED], "tool_choice": {"type": "tool", "name": "later"}},
            "tool_choice.name",
        ),
        (
            {"tools": [TOOL], "messages": [CALLED, user(RESULT | {"content": [REFERENCE]})]},
            "messages.1.content.0.content.0.tool_name",
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "any"}}, "tools"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management"),
        ({"mcp_servers": [{"type": "url", "url": "https://host"}]}, "mcp_servers"),
        ({"speed": "fast"}, "speed"),
        ({"container": "c"}, "container"),
        ({"output_config": {"task_budget": {"type": "tokens", "total": 5}}}, "output_config.task_budget"),
        ({"thinking": {"type": "adaptive", "display": "updates"}}, "thinking.display"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        (
            {"messages": [{"role": "system", "content": "", "output_config": {"effort": "low"}}, USER]},
            "messages.0.output_config",
        ),
    ],
)
def test_what_is_refused_is_named(fields: dict[str, Any], path: str) -> None:
    status, kind, message = error_of(**fields)
    assert (status, kind) == (400, "invalid_request_error")
    assert message.startswith(f"{path}: ")


def test_a_refused_thread_has_the_references_code() -> None:
    body = {"model": "m", "max_tokens": 5, "messages": [USER], "thread": {"type": "create"}}
    with pytest.raises(RequestRefused) as refusal:
        DIALECT.parse(json.dumps(body).encode())
    error = json.loads(DIALECT.error(refusal.value.problem).body)["error"]
    assert ThreadUnsupportedRequestErrorDetails.model_validate(error["details"]).error_code == UNTHREADED
    assert error.keys() == {"type", "message", "details"}


def test_unknown_fields_are_refused() -> None:
    assert error_of(surprise=1)[2] == "surprise: Extra inputs are not permitted"


@pytest.mark.parametrize("version", ["", "latest", "2024-1-1"])
def test_a_malformed_anthropic_version_is_refused(version: str) -> None:
    status, _, message = error_of(Anthropic({"anthropic-version": version}))
    assert status == 400
    assert message.startswith("anthropic-version: ")


def test_the_anthropic_version_is_optional() -> None:
    body: dict[str, Any] = {"model": "m", "messages": [USER]}
    assert Anthropic({}).parse(json.dumps(body | {"max_tokens": 5}).encode()) == parse()
    assert Anthropic({}).parse_count(json.dumps(body).encode()).model == "m"


@pytest.mark.parametrize("header", ["anthropic-user-profile-id", "anthropic-workspace-id"])
def test_headers_that_are_not_served_are_refused(header: str) -> None:
    assert error_of(Anthropic({"anthropic-version": "2023-06-01", header: "x"}))[2].startswith(f"{header}: Not supp")


def test_every_field_of_the_sdk_is_served_or_listed() -> None:
    known = set(MessageCreateParams.__args__[1].__annotations__)  # type: ignore[attr-defined]
    for base in MessageCreateParams.__args__[1].__mro__:  # type: ignore[attr-defined]
        known |= set(getattr(base, "__annotations__", {}))
    assert known <= set(MessagesRequest.model_fields)


def test_what_counts_tokens_has_the_same_prompt() -> None:
    fields = {"model": "m", "messages": [USER], "system": "Be kind.", "tools": [TOOL]}
    counted = DIALECT.parse_count(json.dumps(fields).encode())
    asked = DIALECT.parse(json.dumps(fields | {"max_tokens": 5}).encode())
    assert (counted.messages, counted.tools) == (asked.messages, asked.tools)
    assert counted.tokenization == Tokenization(add_special_tokens=False)
    with pytest.raises(RequestRefused) as refusal:
        DIALECT.parse_count(json.dumps(fields | {"messages": [USER, user(PICTURE)]}).encode())
    assert refusal.value.problem.param == "messages[1].content[0]"


@pytest.mark.parametrize(
    ("excess", "message"),
    [
        (ContextExcess(prompt=9000, completion=5, limit=8192), "prompt is too long: 9000 tokens > 8192 maximum"),
        (
            ContextExcess(prompt=8000, completion=200, limit=8192),
            "input length and `max_tokens` exceed context limit: 8000 + 200 > 8192, "
            "decrease input length or `max_tokens` and try again",
        ),
        (
            ContextExcess(prompt=8192, completion=1, limit=8192),
            "input length and `max_tokens` exceed context limit: 8192 + 1 > 8192, "
            "decrease input length or `max_tokens` and try again",
        ),
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


@pytest.mark.parametrize("kind", sorted(set(ProblemKind) - {ProblemKind.CONTEXT_LENGTH}))
def test_every_kind_of_problem_has_a_form(kind: ProblemKind) -> None:
    reply = DIALECT.error(Problem(kind=kind, message="why", retry_after=0.5))
    assert json.loads(reply.body)["error"]["message"] == "why"
    assert reply.status >= 400
    assert reply.headers["retry-after"] == "1"


def test_a_system_message_may_be_for_one_turn() -> None:
    note = {"role": "system", "content": "Be brief.", "clear_at": "next_user_message"}
    assert [message.role for message in parse(messages=[USER, note]).messages] == ["user", "system"]
    later = parse(messages=[USER, note, {"role": "assistant", "content": "Yes."}, USER])
    assert [message.role for message in later.messages] == ["user", "assistant", "user"]


def test_counts_ignore_compaction() -> None:
    fields: dict[str, Any] = {"model": "m", "messages": [USER], "compaction": {"type": "enabled"}}
    assert DIALECT.parse_count(json.dumps(fields).encode()).messages
    assert error_of(**fields)[2].startswith("compaction: Not supported")


def test_consecutive_turns_of_one_role_are_one() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    messages = [
        user({"type": "text", "text": "One"}, PICTURE),
        USER,
        user(PICTURE),
        {"role": "assistant", "content": [thought, {"type": "text", "text": "I look."}]},
        CALLED,
        user(RESULT | {"content": [PICTURE]}),
        USER,
    ]
    said, assistant, result, last = parse(messages=messages).messages
    assert (said.content, [image.at for image in said.images]) == ("One\nHello", [3, 9])
    assert [image.param for image in said.images] == ["messages[0].content[1]", "messages[2].content[0]"]
    assert (assistant.content, assistant.reasoning, len(assistant.tool_calls)) == ("I look.", "Hm.", 1)
    assert (result.role, last.content, [image.at for image in last.images]) == ("tool", "Hello", [0])
