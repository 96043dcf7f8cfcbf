"""Requests that rank or score texts: what the bodies of each API mean, how they are divided, and their responses."""

import json
import struct
from functools import partial
from typing import Any

import pytest

from api.dialects import ROUTES
from api.dialects.base.interface import Usage
from api.dialects.ovms.rerank import ModelServerRerank
from api.dialects.rerank import CohereRerank, OldCohereRerank, PlainRerank, PlainScores
from shared.protocol.cost import prompt_cost
from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.events import Embedded
from shared.protocol.request import ChatRequest, Rerank
from tests.support.answers import parts_of

RANKERS = (PlainRerank, CohereRerank, OldCohereRerank, ModelServerRerank)


def parsed(dialect: Any, **body: Any) -> ChatRequest:
    request: ChatRequest = dialect().parse(json.dumps({"model": "m", **body}).encode())
    return request


def ranked(dialect: Any, **body: Any) -> ChatRequest:
    return parsed(dialect, **({"query": "q", "documents": ["a", "b", "c"]} | body))


def rendered(dialect: Any, request: ChatRequest, *logits: float) -> Any:
    found = [Embedded(b"".join(struct.pack("<2f", one, 10 * one) for one in logits), len(logits))]
    encoder = dialect().render(request, response_id="1", created=5, fingerprint="")
    return json.loads(encoder.vectors(found, Usage(prompt_tokens=7, completion_tokens=0)))


def test_no_dialect_has_a_partial_function_as_attribute() -> None:
    """From Python 3.14 on, it is a method, which gets the dialect as its first argument."""
    dialects = {dialect for route in ROUTES for dialect in route.dialect.__mro__}
    assert [one for one in dialects if any(isinstance(value, partial) for value in vars(one).values())] == []


@pytest.mark.parametrize(("dialect", "chunks"), [*zip(RANKERS, (0, 1, 10, 10_000), strict=True)])
def test_each_interface_reads_long_documents_in_its_way(dialect: Any, chunks: int) -> None:
    request = ranked(dialect)
    assert request.prompts == ("a", "b", "c")
    assert request.work == Rerank(queries=("q",), chunks=chunks, param="documents", is_list=True)


def test_fields() -> None:
    work: Any = ranked(OldCohereRerank, max_chunks_per_doc=3, rank_fields=["text"]).work
    assert (work.chunks, work.document_tokens) == (3, 0)
    work = ranked(CohereRerank, max_tokens_per_doc=9, priority=3, relevant_spans=None).work
    assert (work.chunks, work.document_tokens) == (1, 9)
    work = ranked(PlainRerank, truncate_prompt_tokens=12).work
    assert (work.chunks, work.cut) == (1, 12)
    request = ranked(OldCohereRerank, documents=["a", {"text": "b", "title": "c"}])
    assert request.prompts == ("a", "b")
    assert dict(request.response.notes) == {"x-ignored-fields": "documents[].title"}
    note = dict(ranked(ModelServerRerank, rank_fields=["x"], later=1).response.notes)
    assert note["x-ignored-fields"] == "later, rank_fields"


@pytest.mark.parametrize(
    ("dialect", "body", "param"),
    [
        (CohereRerank, {"documents": []}, "documents"),
        (CohereRerank, {"documents": ["a"] * 2049}, "documents"),
        (CohereRerank, {"documents": ["a", 1]}, "documents[1]"),
        (CohereRerank, {"documents": [{"title": "b"}]}, "documents[0].text"),
        (CohereRerank, {"rank_fields": ["title"]}, "rank_fields"),
        (CohereRerank, {"relevant_spans": {"enabled": True}}, "relevant_spans"),
        (CohereRerank, {"later": 1}, "later"),
        (CohereRerank, {"query": "q" * 4000, "documents": ["a"] * 400}, "documents"),
        (ModelServerRerank, {"documents": [{"title": "a"}]}, "documents[0].text"),
    ],
)
def test_what_is_not_supported_is_named(dialect: Any, body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRefused) as refusal:
        ranked(dialect, **body)
    problem = refusal.value.problem
    assert (problem.param or problem.message).endswith(param)


def test_rankings() -> None:
    logits, order = (-1.0, 2.0, 2.0), [1, 2, 0]
    for dialect, scores in (
        (PlainRerank, [20.0, 20.0, -10.0]),
        (CohereRerank, [0.880797, 0.880797, 0.268941]),
        (ModelServerRerank, [0.880797, 0.880797, 0.268941]),
    ):
        found = rendered(dialect, ranked(dialect), *logits)["results"]
        assert [one["index"] for one in found] == order
        assert [one["relevance_score"] for one in found] == pytest.approx(scores, abs=1e-6)
        assert [one.get("document") for one in found] == (
            [{"text": text} for text in "bca"] if dialect is PlainRerank else [None] * 3
        )
    whole = rendered(CohereRerank, ranked(CohereRerank, top_n=1, return_documents=True, use_activation=False), *logits)
    assert whole["results"] == [{"index": 1, "relevance_score": 2.0, "document": {"text": "b"}}]
    assert whole["meta"]["tokens"] == {"input_tokens": 7, "output_tokens": 0}
    assert whole["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert rendered(ModelServerRerank, ranked(ModelServerRerank, top_n=0), *logits) == {"results": []}
    assert len(rendered(PlainRerank, ranked(PlainRerank, top_n=0), *logits)["results"]) == 3
    extreme = rendered(CohereRerank, ranked(CohereRerank, documents=["a", "b"]), -1e30, 1e30)["results"]
    assert [one["relevance_score"] for one in extreme] == [1.0, 0.0]


def test_scores() -> None:
    request = parsed(PlainScores, text_1="q", text_2=["a", "b"])
    assert (request.prompts, request.work) == (
        ("a", "b"),
        Rerank(queries=("q",), param="text_2", query_param="text_1", is_list=True),
    )
    found = rendered(PlainScores, request, 1.0, 2.0)
    assert [one["score"] for one in found["data"]] == [10.0, 20.0]
    assert (found["object"], found["created"], found["usage"]["prompt_tokens"]) == ("list", 5, 7)
    raw = parsed(PlainScores, queries=["q", "r"], items=["a", "b"], use_activation=False, truncate_prompt_tokens=-1)
    work: Any = raw.work
    assert (work.queries, work.chunks, work.cut) == (("q", "r"), 1, -1)
    assert [one["score"] for one in rendered(PlainScores, raw, 1.0, 2.0)["data"]] == [1.0, 2.0]
    for body, param in (
        ({"text_1": "q"}, "text_2"),
        ({}, "text_1"),
        ({"text_1": ["q", "r"], "text_2": ["a"]}, "text_1"),
        ({"text_1": "q", "text_2": "a", "data_1": "b"}, "data_1"),
    ):
        with pytest.raises(RequestRefused) as refusal:
            parsed(PlainScores, **body)
        assert refusal.value.problem.param == param


def test_jobs_are_bounded_with_their_queries() -> None:
    request = parsed(PlainScores, text_1=[f"q{i}" for i in range(70)], text_2=[f"d{i}" for i in range(70)])
    parts = parts_of(request)
    works: list[Any] = [part.work for part in parts]
    assert [len(part.prompts) for part in parts] == [32, 32, 6]
    assert [work.first for work in works] == [0, 32, 64]
    assert [query for work in works for query in work.queries] == [f"q{i}" for i in range(70)]
    long = ranked(CohereRerank, query="q" * 4000, documents=["a" * 4000] * 10)
    assert prompt_cost(long) == 20_000
    assert [len(part.prompts) for part in parts_of(long)] == [4, 4, 2]
    assert all(prompt_cost(part) <= 8192 for part in parts_of(long))


def test_errors_have_the_forms_of_cohere_and_openai() -> None:
    reply = CohereRerank().error(Problem(kind=ProblemKind.INVALID, message="No.", param="query"))
    assert reply.status == 400
    body = json.loads(reply.body)
    assert (body["message"], body["error"]["message"], body["error"]["param"]) == ("No.", "No.", "query")
