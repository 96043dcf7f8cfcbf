"""Requests for vectors: what the bodies of each API mean, how they are divided into jobs, and their responses."""

import json
from typing import Any

import pytest

from api.dialects.base.interface import Asked, Usage
from api.dialects.ollama import OllamaEmbed, OllamaEmbeddings
from api.dialects.openai.embeddings import OpenAIEmbeddings
from api.dialects.ovms import ModelServerEmbeddings
from shared.protocol.errors import RequestRefused
from shared.protocol.events import Embedded
from shared.protocol.request import ChatRequest, Embed
from tests.support.answers import parts_of

ONE, TWO = b"\0\0\x80?\0\0\0@", b"\0\0\0\0\0\0\x80\xbf"


def parsed(**body: Any) -> ChatRequest:
    return OpenAIEmbeddings().parse(json.dumps({"model": "m", **body}).encode())


@pytest.mark.parametrize(
    ("given", "prompts", "is_list"),
    [
        ("a", ("a",), False),
        (["a", "b"], ("a", "b"), True),
        ([1, 2], ((1, 2),), False),
        ([[1, 2], [3]], ((1, 2), (3,)), True),
    ],
)
def test_texts_and_ids(given: Any, prompts: Any, is_list: bool) -> None:
    request = parsed(input=given)
    assert request.prompts == prompts
    assert request.work == Embed(is_list=is_list)


def test_fields() -> None:
    body = {"dimensions": 8, "encoding_format": "base64", "input_type": "query", "truncate_prompt_tokens": -1}
    request = parsed(input="a", user="me", **body)
    assert request.work == Embed(dimensions=8, cut=-1, prefix="query")
    assert request.response.base64
    asked = {"model": "m", "input": ["a"], "later": 1}
    assert "later" in dict(ModelServerEmbeddings().parse(json.dumps(asked).encode()).response.notes)["x-ignored-fields"]
    with pytest.raises(RequestRefused, match="later"):
        parsed(input="a", later=1)


def test_ollamas_texts_are_cut_by_default() -> None:
    for truncate, cut in ((None, -1), (True, -1), (False, 0)):
        body = {"model": "m:latest", "input": ["a"], "truncate": truncate, "keep_alive": "5m"}
        request = OllamaEmbed(Asked()).parse(json.dumps(body).encode())
        assert (request.model, request.work) == ("m", Embed(cut=cut, is_list=True))
    old = OllamaEmbeddings(Asked()).parse(b'{"model":"m","prompt":"a"}')
    assert (old.prompts, old.work) == (("a",), Embed(cut=-1, param="prompt"))


def test_jobs_are_bounded_and_know_the_places_of_their_texts() -> None:
    texts = [*["a"] * 40, "x" * 40_000, "b", "y" * 20_000, "z" * 20_000, (1,) * 8000]
    parts = parts_of(parsed(input=texts[:44], encoding_format="base64"))
    assert [text for part in parts for text in part.prompts] == texts[:44]
    assert [part.work for part in parts] == [Embed(is_list=True, first=first) for first in (0, 32, 40, 41, 43)]
    assert [len(part.prompts) for part in parts] == [32, 8, 1, 2, 1]


def test_responses() -> None:
    usage, found = Usage(prompt_tokens=7, completion_tokens=0), [Embedded(ONE + TWO, 2), Embedded(ONE, 1)]
    vectors = [[1.0, 2.0], [0.0, -1.0], [1.0, 2.0]]

    def rendered(dialect: Any, request: ChatRequest) -> Any:
        encoder = dialect.render(request, response_id="1", created=5, fingerprint="")
        return json.loads(encoder.vectors(found, usage))

    response = rendered(OpenAIEmbeddings(), parsed(input=["a", "b", "c"]))
    assert [item["embedding"] for item in response["data"]] == vectors
    assert [item["index"] for item in response["data"]] == [0, 1, 2]
    assert response["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    encoded = rendered(OpenAIEmbeddings(), parsed(input=["a", "b", "c"], encoding_format="base64"))
    assert [item["embedding"] for item in encoded["data"]] == ["AACAPwAAAEA=", "AAAAAAAAgL8=", "AACAPwAAAEA="]
    request = parsed(input="a")
    assert rendered(OllamaEmbed(Asked()), request)["embeddings"] == vectors
    assert rendered(OllamaEmbeddings(Asked()), request) == {"embedding": vectors[0]}
