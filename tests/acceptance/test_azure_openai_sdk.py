"""``AzureOpenAI``, OpenAI's official client for Azure, on the real model."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.acceptance.conftest import MODEL
from tests.support.fleet import Fleet

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}


def azure(fleet: Fleet, **options: Any) -> openai.AzureOpenAI:
    return openai.AzureOpenAI(
        azure_endpoint=f"http://127.0.0.1:{fleet.port}",
        api_version="2024-10-21",
        api_key="none",
        max_retries=0,
        timeout=240,
        **options,
    )


@pytest.fixture
def client(real_fleet: Fleet) -> Iterator[openai.AzureOpenAI]:
    with azure(real_fleet) as opened:
        yield opened


def test_chats_whole_and_streamed(client: openai.AzureOpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=FRANCE, **GREEDY)
    assert "Paris" in (whole.choices[0].message.content or "")
    stream = client.chat.completions.create(model=MODEL, messages=FRANCE, stream=True, **GREEDY)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == whole.choices[0].message.content


def test_completions_and_responses(client: openai.AzureOpenAI) -> None:
    plain = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=3, temperature=0)
    assert "Paris" in plain.choices[0].text
    response = client.responses.create(model=MODEL, input="What is the capital of France?", temperature=0)
    assert "Paris" in response.output_text
    assert client.responses.retrieve(response.id).output_text == response.output_text


def test_files_and_models(real_fleet: Fleet) -> None:
    with azure(real_fleet) as client:
        assert [model.id for model in client.models.list()] == [MODEL]
        line = {"custom_id": "1", "method": "POST", "url": "/chat/completions", "body": {"model": MODEL}}
        file = client.files.create(file=("lines.jsonl", json.dumps(line).encode()), purpose="batch")
        assert client.files.retrieve(file.id).filename == "lines.jsonl"
        client.files.delete(file.id)


def test_the_api_without_versions(real_fleet: Fleet) -> None:
    url = f"http://127.0.0.1:{real_fleet.port}/openai/v1/"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=240) as client:
        answer = client.chat.completions.create(model=MODEL, messages=FRANCE, **GREEDY)
        assert "Paris" in (answer.choices[0].message.content or "")
