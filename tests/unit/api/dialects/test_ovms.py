"""OpenVINO Model Server's dialect: what its bodies become, what it refuses, and how it answers."""

import json
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from api.dialects.base.interface import Choice, TokenLogprob, Usage
from api.dialects.ovms import ModelServer, ModelServerCompletions
from api.dialects.ovms.render import ModelServerResponseEncoder
from shared.protocol.request import ChatRequest

USER = {"role": "user", "content": "Hello"}
DIALECT = ModelServer()


def rendering(**fields: Any) -> ModelServerResponseEncoder:
    request = ChatRequest(model="m", **fields)
    return DIALECT.render(request, response_id="0f", created=1_700_000_000, fingerprint="fp")


def event(stream: bytes) -> dict[str, Any]:
    assert stream.startswith(b"data: ")
    assert stream.endswith(b"\n\n")
    value: dict[str, Any] = json.loads(stream[6:])
    return value


def test_chunks_have_the_references_form() -> None:
    answer = rendering(stream=True)
    common = {"id": "chatcmpl-0f", "created": 1_700_000_000, "model": "m", "object": "chat.completion.chunk"}
    first = event(answer.opening(0))
    assert first == common | {
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": None}, "logprobs": None, "finish_reason": None}
        ]
    }
    assert event(answer.content(0, "Hi"))["choices"][0]["delta"] == {"content": "Hi"}
    (logprob,) = event(answer.content(0, "Hi", (TokenLogprob(b"Hi", -0.5),)))["choices"][0]["logprobs"]["content"]
    assert (logprob["token"], logprob["logprob"]) == ("Hi", -0.5)
    assert event(answer.reasoning(0, "Hm"))["choices"][0]["delta"] == {"reasoning_content": "Hm"}
    assert event(answer.closing(0, "stop"))["choices"][0]["finish_reason"] == "stop"
    assert answer.usage(Usage(prompt_tokens=1, completion_tokens=2)) == b""
    assert answer.done == b"data: [DONE]\n\n"


def test_the_usage_is_three_numbers() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    answer = rendering(stream=True, include_usage=True)
    assert event(answer.opening(0))["usage"] is None
    last = event(answer.usage(Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1)))
    assert (last["choices"], last["usage"]) == ([], usage)
    whole = json.loads(
        rendering().completion(
            [Choice(index=0, text="Hi", reason="stop", logprobs=(TokenLogprob(b"Hi", -0.5),))],
            Usage(prompt_tokens=3, completion_tokens=2),
        )
    )
    assert whole["usage"] == usage
    assert "system_fingerprint" not in whole
    (token,) = whole["choices"][0]["logprobs"]["content"]
    assert (token["token"], token["logprob"], token["bytes"]) == ("Hi", -0.5, [72, 105])


def test_answers_and_chunks_are_those_of_openais_sdk() -> None:
    choices = [Choice(index=0, text="Hi", reason="stop")]
    usage = Usage(prompt_tokens=3, completion_tokens=2)
    whole = ChatCompletion.model_validate_json(rendering().completion(choices, usage))
    chunk = ChatCompletionChunk.model_validate(event(rendering(stream=True).opening(0)))
    assert whole.id == chunk.id == "chatcmpl-0f"


COMPLETIONS = ModelServerCompletions()


def parse_plain(**fields: Any) -> ChatRequest:
    return COMPLETIONS.parse(json.dumps({"model": "m", "prompt": "Once"} | fields).encode())


def test_a_plain_answer_has_the_references_form() -> None:
    answer = COMPLETIONS.render(parse_plain(), response_id="0f", created=1_700_000_000, fingerprint="fp")
    choice = Choice(index=0, text=" upon", reason="length", logprobs=(TokenLogprob(b" upon", -0.5),))
    whole = json.loads(answer.completion([choice], Usage(prompt_tokens=3, completion_tokens=1)))
    assert set(whole) == {"id", "object", "created", "model", "choices", "usage"}
    assert event(answer.content(0, " upon"))["id"] == whole["id"] == "cmpl-0f"
    assert whole["usage"] == {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    assert whole["choices"][0]["logprobs"]["token_logprobs"] == [-0.5]
