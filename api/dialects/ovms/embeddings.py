"""``/v3/embeddings`` of OpenVINO Model Server, which ignores unknown fields; a header of the response names them."""

from pydantic import ConfigDict

from api.dialects.base.body import decode_object
from api.dialects.base.interface import Dialect
from api.dialects.base.validation import validate
from api.dialects.openai.embeddings import EmbeddingEncoder, EmbeddingRequest, translate_embeddings
from shared.protocol.request import ChatRequest


class ModelServerEmbeddingRequest(EmbeddingRequest):
    """The body of ``POST /v3/embeddings``."""

    model_config = ConfigDict(extra="allow")


class ModelServerEmbeddings(Dialect):
    """The embeddings :class:`api.dialects.base.interface.Dialect` of OpenVINO Model Server."""

    encoder = EmbeddingEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return translate_embeddings(validate(ModelServerEmbeddingRequest, decode_object(body)))
