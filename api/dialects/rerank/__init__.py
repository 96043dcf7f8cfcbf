"""The dialects that compare texts with a query: Cohere's rerank, and vLLM's rerank and scores.

vLLM has Cohere's paths too, so that these accept the fields of both.
"""

from functools import partial

import msgspec

from api.dialects.base.interface import Dialect
from api.dialects.base.problems import ErrorReply, error_object, error_reply
from api.dialects.base.routes import Body, embeddings_route
from api.dialects.rerank.parse import RerankRequest, ScoreRequest, parse_rerank, parse_scores
from api.dialects.rerank.render import RankingEncoder, ScoreEncoder
from shared.protocol.errors import Problem
from shared.protocol.request import ChatRequest


class PlainRerank(Dialect):
    """The rerank :class:`api.dialects.base.interface.Dialect` of vLLM: long documents are refused."""

    encoder = RankingEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return parse_rerank(body)


class CohereRerank(PlainRerank):
    """The rerank dialect of Cohere's second version, which cuts documents. Scores are from 0 to 1."""

    def parse(self, body: bytes) -> ChatRequest:
        return parse_rerank(body, chunks=1, activation="sigmoid", documents=False)

    def error(self, problem: Problem) -> ErrorReply:
        both = {"message": problem.message, "error": error_object(problem)}
        return msgspec.structs.replace(error_reply(problem), body=msgspec.json.encode(both))


class OldCohereRerank(CohereRerank):
    """That of the first version, in which a document is as relevant as the best of its parts."""

    def parse(self, body: bytes) -> ChatRequest:
        return parse_rerank(body, chunks=10, activation="sigmoid", documents=False)


class PlainScores(PlainRerank):
    """The scores of vLLM."""

    encoder = ScoreEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return parse_scores(body)


RERANK = partial(embeddings_route, summary="Sort texts by their relevance to a query.")
_SCORE = partial(
    embeddings_route,
    dialect=PlainScores,
    body=Body(ScoreRequest),
    summary="Score the relevance of texts to others.",
    batched=PlainScores,
)
ROUTES = (
    RERANK("/v2/rerank", "cohereRerank", CohereRerank, Body(RerankRequest), batched=CohereRerank),
    RERANK("/v1/rerank", "oldCohereRerank", OldCohereRerank, Body(RerankRequest), batched=OldCohereRerank),
    RERANK("/rerank", "rerank", PlainRerank, Body(RerankRequest), batched=PlainRerank),
    _SCORE("/v1/score", "score"),
    _SCORE("/score", "scoreAtRoot"),
)
