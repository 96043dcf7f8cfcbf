"""Encoders of rankings and scores, which are never streamed."""

import math
from collections.abc import Sequence
from struct import unpack
from typing import Any

import msgspec

from api.dialects.base.interface import ResponseEncoder, Usage
from api.dialects.openai.embeddings import split
from shared.protocol.events import Embedded
from shared.protocol.request import ChatRequest

_UNIT = 100
"""Documents that a query of a search unit may have at most. Source: https://cohere.com/pricing."""


def scores(request: ChatRequest, found: Sequence[Embedded]) -> list[float]:
    """Return the score of each document, in the order of the request."""
    outputs = [unpack("<2f", pair) for pair in split(found)]
    match request.response.activation:
        case "model":
            return [own for _, own in outputs]
        case "none":
            return [logit for logit, _ in outputs]
    # The exponential of a large number would be too large.
    return [0.5 * (1 + math.tanh(logit / 2)) for logit, _ in outputs]


def ranking(request: ChatRequest, found: Sequence[Embedded]) -> list[dict[str, Any]]:
    """Return the best documents, the best first; of equal ones, the first in the request."""
    values = scores(request, found)
    order = sorted(range(len(values)), key=lambda index: -values[index])[: request.response.top]
    ranked: list[dict[str, Any]] = [{"index": index, "relevance_score": values[index]} for index in order]
    if request.response.documents:
        for one in ranked:
            one["document"] = {"text": request.prompts[one["index"]]}
    return ranked


class RankingEncoder(ResponseEncoder):
    """Encodes rankings, with the fields of Cohere and vLLM."""

    done = b""

    def __init__(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> None:
        self._request, self._id, self._created = request, response_id, created

    def vectors(self, found: Sequence[Embedded], usage: Usage) -> bytes:
        counts, units = _counts(usage), -(-len(self._request.prompts) // _UNIT)
        billed = {"api_version": {"version": "2"}, "billed_units": {"search_units": units}}
        meta = billed | {"tokens": {"input_tokens": usage.prompt_tokens, "output_tokens": 0}}
        about = {"id": f"rerank-{self._id}", "model": self._request.model, "usage": counts, "meta": meta}
        return msgspec.json.encode(about | {"results": ranking(self._request, found)})


class ScoreEncoder(RankingEncoder):
    """Encodes scores in the order of the request, as vLLM does."""

    def vectors(self, found: Sequence[Embedded], usage: Usage) -> bytes:
        data = [
            {"index": index, "object": "score", "score": score}
            for index, score in enumerate(scores(self._request, found))
        ]
        about = {"id": f"score-{self._id}", "object": "list", "created": self._created, "model": self._request.model}
        return msgspec.json.encode(about | {"data": data, "usage": _counts(usage)})


def _counts(usage: Usage) -> dict[str, int]:
    return {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}
