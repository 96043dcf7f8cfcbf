"""The model server's Responses API: its own fields, and its forms of tools and formats."""

import json
from typing import Any

import pytest

from api.dialects.base.interface import Choice, Usage
from api.dialects.ovms.responses import ModelServerResponses
from shared.protocol.errors import RequestRefused
from shared.protocol.request import ChatRequest, Constraint, Tool

FUNCTION = {"name": "f", "description": "Does it.", "parameters": {"type": "object"}}


def parse(**fields: Any) -> ChatRequest:
    return ModelServerResponses().parse(json.dumps({"model": "m", "input": "Hello"} | fields).encode())


def refused_field(**fields: Any) -> str | None:
    with pytest.raises(RequestRefused) as refusal:
        parse(**fields)
    return refusal.value.problem.param


def test_the_model_servers_own_fields() -> None:
    fields = {
        "stop": ["a"],
        "ignore_eos": True,
        "skip_special_tokens": False,
        "logprobs": True,
        "min_p": 0.1,
        "top_k": 5,
        "repetition_penalty": 1.1,
        "seed": 7,
        "num_assistant_tokens": 5,
        "max_ngram_size": 3,
        "length_penalty": 0.5,
    }
    request = parse(**fields, best_of=2, n=1, include_stop_str_in_output=True)
    found = {name: getattr(request.sampling, name) for name in fields}
    assert found == fields | {"stop": ("a",)}
    assert (request.sampling.beams, request.sampling.include_stop, request.n) == (2, True, 1)
    assert (request.defaults.top_k, request.store) == (40, False)
    assert parse(top_k=-1).sampling.top_k == 0
    assert parse(stream=True).sampling.include_stop
    assert parse(assistant_confidence_threshold=0.4).sampling.assistant_confidence_threshold == 0.4
    assert refused_field(n=2) == "n"
    assert refused_field(stream=True, include_stop_str_in_output=False) == "include_stop_str_in_output"


def test_reasoning_enables_thinking() -> None:
    request = parse(reasoning={"effort": "low"}, chat_template_kwargs={"a": 1})
    assert json.loads(request.template_kwargs or "") == {"enable_thinking": True, "reasoning_effort": "low", "a": 1}
    assert json.loads(parse(reasoning={"effort": "none"}).template_kwargs or "")["enable_thinking"] is False
    assert refused_field(chat_template_kwargs={"tools": 1}) == "chat_template_kwargs"


def test_response_format_and_tools_in_the_form_of_chats() -> None:
    choice = {"type": "function", "function": {"name": "f"}}
    request = parse(tools=[{"type": "function", "function": FUNCTION}], tool_choice=choice)
    assert request.tools == (Tool(name="f", description="Does it.", parameters='{"type":"object"}'),)
    assert request.named_tool == "f"
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    expected = Constraint(kind="json_schema", value='{"type":"object"}', param="text.format.schema")
    assert parse(response_format=form).constraint == expected
    tag = parse(response_format={"type": "const_string", "value": "a"}).constraint
    assert tag is not None
    assert tag.kind == "structural_tag"
    assert refused_field(response_format=form, text={}) == "response_format"


@pytest.mark.parametrize("fields", [{"store": True}, {"background": True}, {"previous_response_id": "resp_1"}])
def test_what_needs_stored_responses_is_refused(fields: dict[str, Any]) -> None:
    assert refused_field(**fields) == next(iter(fields))
    assert not parse(**dict.fromkeys(fields)).store


def test_streams_end_with_done() -> None:
    dialect = ModelServerResponses()
    request = dialect.parse(b'{"model": "m", "input": "Hello", "tools": [{"type": "web_search"}]}')
    encoder = dialect.render(request, response_id="a", created=1, fingerprint="")
    assert encoder.done == b"data: [DONE]\n\n"
    usage = Usage(prompt_tokens=1, completion_tokens=1)
    document = json.loads(encoder.completion([Choice(index=0, text="Hi", reason="stop")], usage))
    assert (document["store"], dialect.skipped_tools) == (False, ("web_search",))


def test_images_may_be_local_files() -> None:
    content = [{"type": "input_image", "image_url": "/pictures/a.png"}]
    assert parse(input=[{"role": "user", "content": content}]).images[0].url == "file:///pictures/a.png"
