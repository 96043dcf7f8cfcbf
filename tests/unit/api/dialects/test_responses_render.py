"""Responses and streams of the Responses dialect."""

import json
from typing import Any

import msgspec
import pytest

from api.dialects.base.interface import Choice, Usage
from api.dialects.responses import Responses
from shared.protocol.request import ChatRequest, Sampling

USAGE = Usage(prompt_tokens=9, completion_tokens=5, cached_tokens=3, reasoning_tokens=2)
ID = "0123456789abcdef0123456789abcdef"
MODELS_OWN = Sampling(temperature=0.2, top_p=0.9)


def parse(**fields: Any) -> ChatRequest:
    return Responses().parse(json.dumps({"model": "m", "input": "Hello"} | fields).encode())


@pytest.mark.parametrize(
    ("sent", "defaults", "shown"),
    [
        ({}, Sampling(), (1.0, 1.0)),
        ({}, MODELS_OWN, (0.2, 0.9)),
        ({"temperature": 0.7}, MODELS_OWN, (0.7, 0.9)),
        ({"top_p": 0}, MODELS_OWN, (0.0, 0.0)),
    ],
)
def test_a_response_shows_the_sampling_that_was_used(
    sent: dict[str, float], defaults: Sampling, shown: tuple[float, float]
) -> None:
    request = msgspec.structs.replace(parse(**sent), defaults=defaults)
    encoding = Responses().render(request, response_id=ID, created=7, fingerprint="")
    document = json.loads(encoding.completion([Choice(index=0, text="Hi!", reason="stop")], USAGE))
    assert (document["temperature"], document["top_p"]) == shown


@pytest.mark.parametrize("reasoning", [{}, {"summary": "auto"}])
def test_encrypted_content_continues_reasoning_that_is_not_sent_back(reasoning: dict[str, str]) -> None:
    request = parse(include=["reasoning.encrypted_content"], reasoning=reasoning)
    by = Responses().render(request, response_id=ID, created=7, fingerprint="fp")
    stream = by.opening(0) + by.reasoning(0, "Hm") + by.reasoning(0, ".") + by.content(0, "Hi")
    stream += by.closing(0, "stop") + by.usage(USAGE)
    found = [json.loads(event.partition(b"data: ")[2]) for event in stream.split(b"\n\n")[:-1]]
    item, _ = (event["item"] for event in found if event["type"] == "response.output_item.done")
    assert found[-1]["response"]["output"][0] == item
    sent = {"type": "reasoning", "summary": [], "encrypted_content": item["encrypted_content"]}
    assert parse(input=[sent, {"role": "user", "content": "Hello"}]).messages[0].reasoning == "Hm."
    foreign = sent | {"encrypted_content": "gAAAAABo", "summary": [{"type": "summary_text", "text": "Well."}]}
    assert parse(input=[foreign, {"role": "user", "content": "Hello"}]).messages[0].reasoning == "Well."
    assert '"include"' not in by.document.decode()
