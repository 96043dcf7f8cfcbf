"""The dialect of OpenVINO Model Server, at ``/v3``.

Responses have OpenAI's form without ``system_fingerprint`` and usage details. The reference has no ``id``. It is
included because OpenAI's clients require one.
"""

from collections.abc import Iterable, Set

import msgspec
from pydantic import ConfigDict

from api.dialects.base.body import decode_object
from api.dialects.base.interface import Dialect, Models
from api.dialects.base.routes import Body, chat_route, embeddings_route, models_route, results_route
from api.dialects.base.unsupported import supported_fields
from api.dialects.base.validation import validate
from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.embeddings import EmbeddingEncoder, EmbeddingRequest, translate_embeddings
from api.dialects.openai.render import ChatResponseEncoder
from api.dialects.ovms.parse import ModelServerChatRequest, ModelServerCompletionRequest, parse_chat, parse_completion
from api.dialects.ovms.rerank import ModelServerRerank, ModelServerRerankRequest
from api.dialects.ovms.responses import STORED_FIELDS, ModelServerResponses, ModelServerResponsesRequest
from api.dialects.ovms.tokens import ModelServerTokenizeRequest, ModelServerTokens
from api.dialects.rerank import RERANK
from shared.protocol.registry import ModelInfo
from shared.protocol.request import ChatRequest


class ModelServerResponseEncoder(ChatResponseEncoder):
    _fingerprinted = _detailed = False

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        super().opening(choice)
        return self._chunk(choice, {"role": "assistant", "content": None})


class ModelServerCompletionResponseEncoder(CompletionResponseEncoder):
    _fingerprinted = _detailed = False


class ModelServer(Dialect):
    """The chat completions :class:`api.dialects.base.interface.Dialect` of OpenVINO Model Server."""

    encoder = ModelServerResponseEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return parse_chat(body)


class ModelServerCompletions(Dialect):
    """The plain completions :class:`api.dialects.base.interface.Dialect` of OpenVINO Model Server."""

    encoder = ModelServerCompletionResponseEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return parse_completion(body)


class ModelServerEmbeddingRequest(EmbeddingRequest):
    """The body of ``POST /v3/embeddings``."""

    model_config = ConfigDict(extra="allow")


class ModelServerEmbeddings(Dialect):
    """The embeddings :class:`api.dialects.base.interface.Dialect` of OpenVINO Model Server."""

    encoder = EmbeddingEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return translate_embeddings(validate(ModelServerEmbeddingRequest, decode_object(body)))


_STATES = {"loading": "LOADING", "failed": "LOADING", "unloading": "UNLOADING", "unloaded": "END"}
"""By the state of a model of a catalogue. Other models are available once they are loaded."""


def render_config(models: Iterable[ModelInfo], loaded: Set[str]) -> bytes:
    """Encode the status of ``models`` as JSON: each has one version, whose error says why it has failed to load.

    ``loaded`` are the names of those that a worker serves now.
    """
    return msgspec.json.encode({model.name: {"model_version_status": [_status(model, loaded)]} for model in models})


def _status(model: ModelInfo, loaded: Set[str]) -> dict[str, object]:
    failed = model.state == "failed"
    error = {"error_code": "FAILED_PRECONDITION" if failed else "OK", "error_message": model.detail if failed else "OK"}
    state = _STATES.get(model.state, "AVAILABLE" if model.name in loaded else "LOADING")
    return {"version": "1", "state": state, "status": error}


class _Config(ModelServer):
    """Says which models are loaded."""

    summary = "Say which models are loaded, in the form of OpenVINO Model Server."

    def models(self, models: Models, body: bytes) -> bytes:
        return render_config(models.visible.values(), models.loaded)


_FORMAT = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
# The worker validates the formats that OpenAI does not have.
_CHAT = Body(ModelServerChatRequest, properties={"response_format": _FORMAT})
_COMPLETION = Body(ModelServerCompletionRequest)
_RESPONSE = Body(ModelServerResponsesRequest, served=supported_fields(ModelServerResponsesRequest) - {*STORED_FIELDS})
ROUTES = (
    chat_route("/v3/chat/completions", "modelServerChat", ModelServer, _CHAT),
    chat_route("/v3/completions", "modelServerCompletion", ModelServerCompletions, _COMPLETION),
    chat_route("/v3/responses", "modelServerResponse", ModelServerResponses, _RESPONSE),
    embeddings_route(
        "/v3/embeddings", "modelServerEmbedding", ModelServerEmbeddings, Body(ModelServerEmbeddingRequest)
    ),
    results_route(
        "/v3/tokenize",
        "modelServerTokenize",
        ModelServerTokens,
        body=Body(ModelServerTokenizeRequest),
        summary="Return the tokens of a text or of several, in the form of OpenVINO Model Server.",
    ),
    RERANK("/v3/rerank", "modelServerRerank", ModelServerRerank, Body(ModelServerRerankRequest)),
    models_route("/v3/models", "modelServerModels", ModelServer),
    models_route("/v1/config", "modelServerConfig", _Config, summary=_Config.summary),
    models_route("/v3/config", "modelServerConfigAtV3", _Config, summary=_Config.summary),
)
