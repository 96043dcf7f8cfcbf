"""Vectors of the real model by the official clients, through a store and processes: values, errors, interfaces."""

import base64
import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy
import ollama
import openai
import pytest
from azure.ai.inference import EmbeddingsClient
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError

from tests.support.embedding_texts import VECTORS, model_folder, texts
from tests.support.fleet import ONE_THREAD, PATIENT, SIMULATED, Fleet, fleet
from worker.embed.tokens import open_tokens

MODEL = "all-MiniLM-L6-v2"
LIMIT = 256
QUESTIONS = ("Which river flows through Paris?", "a", "µ " * 40)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A worker with the model, and one whose model generates."""
    with fleet(tmp_path_factory.mktemp("embeddings"), lease=PATIENT) as running:
        running.worker("--model", f"{MODEL}={model_folder()}", "--plugin-config", json.dumps(ONE_THREAD))
        running.worker(*SIMULATED)
        running.api()
        yield running


def url(served: Fleet) -> str:
    return f"http://127.0.0.1:{served.port}"


def vectors(served: Fleet, given: Any, **more: Any) -> list[list[float]]:
    response = served.client().embeddings.create(model=MODEL, input=given, **more)
    assert [item.index for item in response.data] == list(range(len(response.data)))
    return [item.embedding for item in response.data]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


def refused(served: Fleet, given: Any, **more: Any) -> Any:
    with pytest.raises(openai.BadRequestError) as failure:
        served.client().embeddings.create(model=MODEL, input=given, **more)
    return failure.value


def test_values_are_those_of_sentence_transformers(served: Fleet) -> None:
    expected = numpy.load(VECTORS).astype(numpy.float32)
    found = vectors(served, texts(), extra_body={"truncate_prompt_tokens": -1})
    assert len(found) == len(expected) == 200
    assert min(cosine(one, other) for one, other in zip(found, expected.tolist(), strict=True)) > 0.99999


def test_a_text_has_the_same_vector_alone_and_among_others(served: Fleet) -> None:
    together = vectors(served, [*QUESTIONS, *texts(60)], extra_body={"truncate_prompt_tokens": -1})
    for question, vector in zip(QUESTIONS, together, strict=False):
        (alone,) = vectors(served, question)
        assert max(abs(a - b) for a, b in zip(alone, vector, strict=True)) <= 1e-5


def test_floats_and_base64_are_the_same_numbers(served: Fleet) -> None:
    client = served.client()
    floats = client.embeddings.create(model=MODEL, input="Hello", encoding_format="float", user="me")
    encoded = client.embeddings.with_raw_response.create(model=MODEL, input="Hello", encoding_format="base64")
    raw = base64.b64decode(json.loads(encoded.text)["data"][0]["embedding"])
    assert list(struct.unpack("<384f", raw)) == floats.data[0].embedding
    assert floats.usage.prompt_tokens == floats.usage.total_tokens == 3
    assert (floats.model, floats.object) == (MODEL, "list")


def test_token_ids_are_those_of_this_model_only_if_the_client_says_so(served: Fleet) -> None:
    tokens = open_tokens(str(model_folder()), LIMIT)
    ids = list(tokens.tokenizer.encode("Hello world").ids)
    error = refused(served, [ids])
    assert error.param == "input[0]"
    assert "check_embedding_ctx_length=False" in error.message
    own = {"add_special_tokens": False}
    assert vectors(served, ids, extra_body=own) == vectors(served, [ids], extra_body=own)
    (of_text,) = vectors(served, "Hello world")
    (of_ids,) = vectors(served, ids, extra_body=own)
    assert cosine(of_text, of_ids) > 0.999999
    error = refused(served, [ids, [101, 30522, 102]], extra_body=own)
    assert error.param == "input[1][1]"
    assert "30522" in error.message


@pytest.mark.parametrize(
    ("given", "more", "param", "words"),
    [
        (["a", ""], {}, "input[1]", "empty"),
        ([*["a"] * 40, " "], {}, "input[40]", "empty"),
        ("", {}, "input", "empty"),
        ([], {}, "input", "empty array"),
        (["a", "word " * 600], {}, "input[1]", "602 tokens"),
        ("a", {"dimensions": 128}, "dimensions", "384"),
        ("a", {"dimensions": 0}, "dimensions", ">= 1"),
        (["a"] * 2049, {}, "input", "2048"),
        (["word " * 1000] * 300, {}, "input", "300000"),
        ("a", {"extra_body": {"add_special_tokens": False}}, "add_special_tokens", "special tokens"),
        ([["a"]], {}, "input[0][0]", "integer"),
    ],
)
def test_what_would_be_wrong_is_refused_by_its_place(
    served: Fleet, given: Any, more: dict[str, Any], param: str, words: str
) -> None:
    error = refused(served, given, **more)
    assert error.param == param
    assert words in error.message


def test_long_texts_are_cut_where_the_client_says_so(served: Fleet) -> None:
    error = refused(served, "word " * 600)
    assert (error.code, str(LIMIT) in error.message) == ("context_length_exceeded", True)
    (cut,) = vectors(served, "word " * 600, extra_body={"truncate_prompt_tokens": -1})
    (shorter,) = vectors(served, "word " * 254)
    assert max(abs(a - b) for a, b in zip(cut, shorter, strict=True)) <= 1e-5
    (cut,) = vectors(served, "Hello world again", extra_body={"truncate_prompt_tokens": 4})
    assert cosine(cut, vectors(served, "Hello world")[0]) > 0.999999


def test_models_say_what_they_do_and_refuse_all_else(served: Fleet) -> None:
    kinds = {model.id: model.model_extra["kinds"] for model in served.client().models.list() if model.model_extra}
    assert kinds == {MODEL: ["embed"], "sim": ["generate"]}
    with pytest.raises(openai.BadRequestError, match=r"does not serve chats and completions\. It serves embeddings"):
        served.client().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hello"}])
    with pytest.raises(openai.BadRequestError, match=r"does not serve embeddings\. It serves chats and completions"):
        served.client().embeddings.create(model="sim", input="Hello")
    _, _, body = served.request("POST", "/tokenize", json.dumps({"model": MODEL, "prompt": "Hello world"}))
    assert json.loads(body)["tokens"] == [101, 7592, 2088, 102]
    with ollama.Client(url(served)) as client:
        assert client.show(MODEL).capabilities == ["embedding"]


def test_other_interfaces_return_the_same_vectors(served: Fleet) -> None:
    given = ["Hello world", "How are you?"]
    expected, address = vectors(served, given), url(served)
    with EmbeddingsClient(address, AzureKeyCredential("none"), api_version="2024-05-01-preview") as azure:
        assert [item.embedding for item in azure.embed(input=given, model=MODEL).data] == expected
    with openai.AzureOpenAI(azure_endpoint=address, api_key="none", api_version="2024-10-21") as azure_openai:
        assert [item.embedding for item in azure_openai.embeddings.create(model=MODEL, input=given).data] == expected
    found = served.client("v3").embeddings.create(model=MODEL, input=given, extra_body={"unknown": 1})
    assert [item.embedding for item in found.data] == expected
    with ollama.Client(address) as client:
        embedded = client.embed(MODEL, given)
        assert [list(vector) for vector in embedded.embeddings] == expected
        assert embedded.prompt_eval_count == 10
        assert list(client.embeddings(MODEL, given[0]).embedding) == expected[0]


def test_azure_names_the_field_of_an_error(served: Fleet) -> None:
    with EmbeddingsClient(url(served), AzureKeyCredential("none"), api_version="2024-05-01-preview") as azure:
        with pytest.raises(HttpResponseError) as failure:
            azure.embed(input=["a", ""], model=MODEL)
        assert (failure.value.status_code, "input[1]" in str(failure.value)) == (422, True)
        with pytest.raises(HttpResponseError, match="ubinary"):
            azure.embed(input=["a"], model=MODEL, encoding_format="ubinary")


def test_a_batch_has_vectors_too(served: Fleet) -> None:
    client = served.client()
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/embeddings", "body": {"model": MODEL, "input": given}}
        for name, given in (("one", "Hello"), ("two", ["Hello", "Bye"]), ("bad", ["Hello", ""]))
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("input.jsonl", content), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
    served.until(lambda: client.batches.retrieve(batch.id).status == "completed", "the batch to complete")
    done = client.batches.retrieve(batch.id)
    assert done.output_file_id is not None
    assert done.error_file_id is not None
    results = {one["custom_id"]: one for one in map(json.loads, client.files.content(done.output_file_id).iter_lines())}
    found = [item["embedding"] for item in results["two"]["response"]["body"]["data"]]
    assert found == vectors(served, ["Hello", "Bye"])
    (failed,) = map(json.loads, client.files.content(done.error_file_id).iter_lines())
    assert failed["response"]["body"]["error"]["param"] == "input[1]"


def test_no_key_of_the_store_holds_a_vector(served: Fleet) -> None:
    (vector,) = vectors(served, "No trace of this")
    raw = struct.pack("<384f", *vector)
    store: Any = served.redis()
    values: list[bytes] = []
    for key in store.keys("*"):
        match store.type(key):
            case b"list":
                values += store.lrange(key, 0, -1)
            case b"string":
                values.append(store.get(key))
            case b"hash":
                values += store.hvals(key)
    assert values
    assert not any(raw[:32] in value for value in values)


def test_langchain_sends_texts_or_is_told_how(served: Fleet) -> None:
    from langchain_openai import OpenAIEmbeddings

    with httpx.Client() as connection:
        base: dict[str, Any] = {"base_url": f"{url(served)}/v1", "api_key": "none", "model": MODEL}
        strings = OpenAIEmbeddings(check_embedding_ctx_length=False, http_client=connection, **base)
        assert strings.embed_documents(["Hello", "Bye"]) == vectors(served, ["Hello", "Bye"])
