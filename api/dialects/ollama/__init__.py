"""The dialect of Ollama's API, at ``/api``."""

import hashlib
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from api.dialects.base.body import decode_object
from api.dialects.base.interface import Dialect, Models, ResponseEncoder
from api.dialects.base.problems import FORMS, ErrorReply, retry_headers
from api.dialects.base.routes import Body, chat_route, embeddings_route, models_route
from api.dialects.base.validation import validate
from api.dialects.ollama.embeddings import (
    EmbeddingsEncoder,
    EmbedEncoder,
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
    parse_embed,
    parse_embeddings,
)
from api.dialects.ollama.parse import parse_chat, parse_generate
from api.dialects.ollama.render import ChatEncoder, GenerateEncoder
from api.dialects.ollama.schema import OllamaChatRequest, OllamaGenerateRequest, OllamaModel
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.formats import NONE, ModelFormats
from shared.protocol.registry import EMBED, GENERATE, IMAGE, ModelInfo
from shared.protocol.request import ChatRequest

VERSION = "0.12.11"  # That of Ollama whose API this is. Some clients need a minimum.

_UNSERVED = "models are added, copied and deleted by the operator of this service."


class Ollama(Dialect):
    """The chats' :class:`api.dialects.base.interface.Dialect` of Ollama. Its examples declare no content type."""

    encoder: type[ChatEncoder] | type[EmbedEncoder] = ChatEncoder
    parser = staticmethod(parse_chat)
    roots = ("/api",)
    untyped = True
    stream_type = "application/x-ndjson"
    comments = False
    error_schemas: ClassVar = {
        "OllamaError": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    }

    def parse(self, body: bytes) -> ChatRequest:
        request = self.parser(body)
        return msgspec.structs.replace(request, model=self.own_name(request.model))

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponseEncoder:
        return self.encoder(request, at=self.asked.at)

    def error(self, problem: Problem) -> ErrorReply:
        why = f": {_UNSERVED}" if problem.kind is ProblemKind.ROUTE_NOT_FOUND else ""
        body = msgspec.json.encode({"error": f"{problem.message}{why}"})
        return ErrorReply(status=FORMS[problem.kind].status, body=body, headers=retry_headers(problem))

    def models(self, models: Models, body: bytes) -> bytes:
        """List the served models in Ollama's form."""
        return msgspec.json.encode({"models": [_described(model) for model in models.visible.values()]})

    def own_name(self, name: str) -> str:
        """Return a name without the tag that Ollama's clients append to names that have none."""
        fleet = self.asked.fleet
        return name if fleet.own_name(name) in fleet.serving() else name.removesuffix(":latest")


class OllamaGenerate(Ollama):
    """Of prompts."""

    encoder = GenerateEncoder
    parser = staticmethod(parse_generate)


class OllamaEmbed(Ollama):
    """Of vectors."""

    encoder = EmbedEncoder
    parser = staticmethod(parse_embed)


class OllamaEmbeddings(Ollama):
    """Of the vector of a text."""

    encoder = EmbeddingsEncoder
    parser = staticmethod(parse_embeddings)


class _Running(Ollama):
    def models(self, models: Models, body: bytes) -> bytes:
        """List the models that a worker serves now, in Ollama's form."""
        found = {name: model for name, model in models.visible.items() if name in models.loaded}
        return super().models(models._replace(visible=found), body)


class _Shown(Ollama):
    def models(self, models: Models, body: bytes) -> bytes:
        """Describe a model in Ollama's form."""
        model = models.find(self.own_name(validate(OllamaModel, decode_object(body)).model))
        formats = model.formats or ModelFormats()
        calls, thinks = formats.tool_parser != NONE, formats.reasoning_parser != NONE
        found = {"completion": GENERATE in model.kinds, "embedding": EMBED in model.kinds}
        found |= {"vision": IMAGE in model.modalities, "tools": calls, "thinking": thinks}
        about = {"general.architecture": "openvino", "openvino.context_length": model.context_length}
        shown = {"model_info": about, "capabilities": [name for name, has in found.items() if has]}
        return msgspec.json.encode(_described(model) | shown)


class _Version(Ollama):
    def models(self, models: Models, body: bytes) -> bytes:
        """Return the version of Ollama whose API is served."""
        return msgspec.json.encode({"version": VERSION})


def _described(model: ModelInfo) -> dict[str, Any]:
    """Return what is known of a model. Its size is not."""
    unknown: dict[str, Any] = dict.fromkeys(("parent_model", "family", "parameter_size", "quantization_level"), "")
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z"),
        "digest": hashlib.sha256(f"{model.fingerprint} {model.created}".encode()).hexdigest(),
        "details": unknown | {"families": [], "format": "openvino"},
        "context_length": model.context_length,
    }


ROUTES = (
    chat_route("/api/chat", "ollamaChat", Ollama, Body(OllamaChatRequest)),
    chat_route("/api/generate", "ollamaGenerate", OllamaGenerate, Body(OllamaGenerateRequest)),
    embeddings_route("/api/embed", "ollamaEmbed", OllamaEmbed, Body(OllamaEmbedRequest)),
    embeddings_route("/api/embeddings", "ollamaEmbeddings", OllamaEmbeddings, Body(OllamaEmbeddingsRequest)),
    models_route("/api/tags", "ollamaTags", Ollama),
    models_route("/api/ps", "ollamaRunning", _Running),
    models_route("/api/show", "ollamaShow", _Shown, "POST", body=Body(OllamaModel)),
    models_route("/api/version", "ollamaVersion", _Version),
)
