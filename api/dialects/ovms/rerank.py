"""``/v3/rerank`` of OpenVINO Model Server, which ignores unknown fields; a header of the response names them.

Source: its handler of rerank requests. A document that is too long is read in parts, and as relevant as the best one.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
from pydantic import ConfigDict

from api.dialects.base.interface import Usage
from api.dialects.base.unsupported import Ignored
from api.dialects.rerank import PlainRerank
from api.dialects.rerank.parse import RerankRequest, parse_rerank
from api.dialects.rerank.render import RankingEncoder, ranking
from shared.protocol.events import Embedded
from shared.protocol.request import ChatRequest

_CHUNKS = 10_000
"""Default of the model server's ``max_allowed_chunks``."""


class ModelServerRerankRequest(RerankRequest):
    """The body of ``POST /v3/rerank``."""

    model_config = ConfigDict(extra="allow")
    zero_is_all: ClassVar[bool] = False

    rank_fields: Annotated[list[str] | None, Ignored()] = None


class ModelServerRankingEncoder(RankingEncoder):
    """Encodes rankings without anything else."""

    def vectors(self, found: Sequence[Embedded], usage: Usage) -> bytes:
        return msgspec.json.encode({"results": ranking(self._request, found)})


class ModelServerRerank(PlainRerank):
    """The rerank :class:`api.dialects.base.interface.Dialect` of OpenVINO Model Server."""

    encoder = ModelServerRankingEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return parse_rerank(body, form=ModelServerRerankRequest, chunks=_CHUNKS, activation="sigmoid", documents=False)
