"""Rankings and scores through a store and processes: values, interfaces, errors, and what Cohere's clients send.

The bodies of Cohere's clients were recorded from the package cohere 7.3.1.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

from tests.support.batches import ended, results, submit
from tests.support.fleet import ONE_THREAD, PATIENT, SIMULATED, Fleet, fleet
from tests.support.paths import MODELS

ABOUT = json.loads((MODELS / "rerank-bert" / "scores.json").read_text())
QUERIES, DOCUMENTS = ABOUT["queries"], ABOUT["documents"]
SHORT = [one for one in DOCUMENTS if len(one) < 40]
LIMIT = 32


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Workers with a reranker, an embedder, and a model that generates."""
    with fleet(tmp_path_factory.mktemp("rerank"), lease=PATIENT) as running:
        for name in ("rerank-bert", "embed-bert"):
            running.worker("--model", f"{name}={MODELS / name}", "--plugin-config", json.dumps(ONE_THREAD))
        running.worker(*SIMULATED)
        running.api()
        yield running


def asked(served: Fleet, path: str, status: int = 200, **body: Any) -> Any:
    answered, _, text = served.request("POST", path, json.dumps({"model": "rerank-bert"} | body))
    assert answered == status, text
    return json.loads(text)


def sigmoid(logits: Any) -> Any:
    return 1 / (1 + numpy.exp(-numpy.array(logits)))


def test_ranks_and_scores_are_those_of_transformers(served: Fleet) -> None:
    expected = dict(zip(DOCUMENTS, sigmoid(ABOUT["logits"][0]), strict=True))
    order = sorted(SHORT, key=lambda text: -expected[text])
    for path in ("/v3/rerank", "/rerank", "/v1/rerank", "/v2/rerank"):
        results = asked(served, path, query=QUERIES[0], documents=SHORT)["results"]
        assert [SHORT[one["index"]] for one in results] == order
        found = [one["relevance_score"] for one in results]
        numpy.testing.assert_allclose(found, [expected[text] for text in order], atol=1e-5)
    for path in ("/score", "/v1/score"):
        data = asked(served, path, text_1=QUERIES[0], text_2=SHORT)["data"]
        numpy.testing.assert_allclose([one["score"] for one in data], [expected[text] for text in SHORT], atol=1e-5)
    cut = asked(served, "/v2/rerank", query=QUERIES[1], documents=DOCUMENTS, use_activation=False)["results"]
    found = [one["relevance_score"] for one in sorted(cut, key=lambda one: one["index"])]
    numpy.testing.assert_allclose(found, ABOUT["logits"][1], atol=1e-5)


def test_a_document_has_the_same_score_alone_and_among_many(served: Fleet) -> None:
    together = asked(served, "/score", text_1=QUERIES[0], text_2=SHORT * 20, truncate_prompt_tokens=-1)["data"]
    assert [one["index"] for one in together] == list(range(20 * len(SHORT)))
    for index, text in enumerate(SHORT):
        (alone,) = asked(served, "/score", text_1=QUERIES[0], text_2=text)["data"]
        numpy.testing.assert_allclose(
            [one["score"] for one in together[index :: len(SHORT)]], alone["score"], atol=1e-5
        )


def test_what_open_webui_asks_is_served(served: Fleet) -> None:
    """Its functions of retrieval send no more than this, to a URL for each kind, and read no other fields."""
    texts = ["the river", "Hello world !"]
    openai = asked(served, "/v1/embeddings", model="embed-bert", input=texts)["data"]
    azure = "/openai/deployments/embed-bert/embeddings?api-version=2024-10-21"
    status, _, answer = served.request("POST", azure, json.dumps({"input": texts}))
    assert (status, json.loads(answer)["data"]) == (200, openai)
    ollama = asked(served, "/api/embed", model="embed-bert", input=texts, truncate=True)["embeddings"]
    numpy.testing.assert_allclose(ollama, [one["embedding"] for one in openai], atol=1e-6)
    ranked = asked(served, "/v1/rerank", query=QUERIES[0], documents=SHORT, top_n=len(SHORT))["results"]
    scores = [one["relevance_score"] for one in sorted(ranked, key=lambda one: one["index"])]
    expected = dict(zip(DOCUMENTS, sigmoid(ABOUT["logits"][0]), strict=True))
    numpy.testing.assert_allclose(scores, [expected[text] for text in SHORT], atol=1e-5)


def test_a_search_unit_is_a_query_with_up_to_100_documents(served: Fleet) -> None:
    for count, units in ((1, 1), (100, 1), (101, 2)):
        body = asked(served, "/v2/rerank", query="the", documents=["a"] * count, top_n=1)
        assert body["meta"]["billed_units"] == {"search_units": units}


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score"])
def test_a_batch_ranks_and_scores_too(served: Fleet, path: str) -> None:
    scores = path.endswith("score")
    body: dict[str, Any] = {"model": "rerank-bert"} | (
        {"text_1": QUERIES[0], "text_2": SHORT} if scores else {"query": QUERIES[0], "documents": SHORT}
    )
    bad = body | {"text_2" if scores else "documents": ["a", ""]}
    lines = [
        {"custom_id": name, "method": "POST", "url": path, "body": given} for name, given in (("a", body), ("b", bad))
    ]
    client = served.client()
    done = ended(client, submit(client, lines, path), served.logs)
    (found,), (failed,) = results(client, done.output_file_id), results(client, done.error_file_id)
    expected, field = asked(served, path, **body), "data" if scores else "results"
    assert found["response"]["body"][field] == expected[field]
    assert failed["response"]["status_code"] == 400
    assert done.usage is not None
    assert done.usage.input_tokens == expected["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        # Client.rerank and ClientV2.rerank
        ("/v1/rerank", {"query": "the river", "documents": ["a", {"text": "red river"}], "return_documents": True}),
        ("/v1/rerank", {"query": "the river", "documents": ["a", "red river"], "top_n": 2, "max_chunks_per_doc": 4}),
        ("/v2/rerank", {"query": "the river", "documents": ["a", "red river"], "top_n": 2, "max_tokens_per_doc": 100}),
    ],
)
def test_what_cohere_sends(served: Fleet, path: str, body: dict[str, Any]) -> None:
    found = asked(served, path, **body)
    assert {one["index"] for one in found["results"]} == {0, 1}
    assert found["meta"]["tokens"]["input_tokens"] == found["usage"]["prompt_tokens"] == 6 + 7
    assert all(0 <= one["relevance_score"] <= 1 for one in found["results"])


def test_errors_name_the_place(served: Fleet) -> None:
    error = asked(served, "/v2/rerank", 400, query="the", documents=["a", ""])
    assert (error["error"]["param"], error["message"]) == ("documents[1]", error["error"]["message"])
    error = asked(served, "/score", 400, text_1="the", text_2=["a", "red " * 40])["error"]
    assert (error["param"], error["code"]) == ("text_2[1]", "context_length_exceeded")
    assert f"{LIMIT} tokens" in error["message"]
    assert "44 tokens" in error["message"]


def test_models_say_what_they_do_and_refuse_all_else(served: Fleet) -> None:
    kinds = {model.id: model.model_extra["kinds"] for model in served.client().models.list() if model.model_extra}
    assert kinds == {"rerank-bert": ["rerank"], "embed-bert": ["embed"], "sim": ["generate"]}
    for model, served_kinds in (("embed-bert", "embeddings"), ("sim", "chats and completions")):
        error = asked(served, "/v3/rerank", 400, model=model, query="a", documents=["b"])["error"]
        assert error["message"].endswith(f"does not serve rerank and scores. It serves {served_kinds}.")
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/v1/completions", {"prompt": "a"})):
        error = asked(served, path, 400, **body)["error"]
        assert error["message"].endswith("It serves rerank and scores.")
    assert asked(served, "/tokenize", prompt="the river")["tokens"] == [1, 5, 7, 2]
    _, _, text = served.request("GET", "/metrics")
    assert b'vinoqueue_model_kind{kind="rerank",model="rerank-bert"} 1' in text
