"""Files and batches with the official SDK on the real model; all that comes is strictly typed."""

import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.acceptance.conftest import MODEL
from tests.support.batches import ended, results, submit
from tests.support.fleet import Fleet
from tests.support.sdk_types import rechecked

QUESTIONS = ("What is the capital of France?", "What is 2 + 2?", "Name a colour.")
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"answer": {"enum": ["yes", "no"]}},
            "required": ["answer"],
            "additionalProperties": False,
        },
    },
}


def body(question: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 12, **fields}


def test_a_batch_of_chats(real_fleet: Fleet) -> None:
    client = real_fleet.client()
    bodies = [*map(body, QUESTIONS), body("Is water wet?", response_format=SCHEMA), body("Hi", temperature=7)]
    lines = [
        {"custom_id": f"q{number}", "method": "POST", "url": "/v1/chat/completions", "body": one}
        for number, one in enumerate(bodies)
    ]
    made = rechecked(submit(client, lines, metadata={"topic": "acceptance"}))
    assert made.id in [batch.id for batch in client.batches.list(limit=5)]
    batch = rechecked(ended(client, made))
    assert (batch.status, batch.model) == ("completed", MODEL)
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 5, "completed": 4, "failed": 1}
    file = rechecked(client.files.retrieve(batch.output_file_id or ""))
    assert file in list(client.files.list(purpose="batch_output"))
    found = results(client, batch.output_file_id)
    assert [line["custom_id"] for line in found] == ["q0", "q1", "q2", "q3"]
    used = 0
    for asked, line in zip(bodies, found, strict=False):
        completion = ChatCompletion.model_validate(line["response"]["body"], strict=True)
        direct = client.chat.completions.create(**asked)
        assert completion.choices[0].message.content == direct.choices[0].message.content
        assert completion.usage is not None
        used += completion.usage.completion_tokens
    assert batch.usage is not None
    assert batch.usage.output_tokens == used
    assert json.loads(found[3]["response"]["body"]["choices"][0]["message"]["content"])["answer"] in ("yes", "no")
    (error,) = results(client, batch.error_file_id)
    assert (error["custom_id"], error["response"]["body"]["error"]["param"]) == ("q4", "temperature")
    with pytest.raises(openai.BadRequestError):
        client.batches.cancel(batch.id)
    for file_id in (batch.input_file_id, batch.output_file_id, batch.error_file_id):
        assert rechecked(client.files.delete(file_id or "")).deleted
