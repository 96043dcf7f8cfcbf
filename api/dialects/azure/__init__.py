"""The dialect of the Azure AI model inference API, at ``/chat``, ``/info`` and ``/models``."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import msgspec

from api.dialects.azure.errors import ERROR_SCHEMA, error_object, error_reply, shown
from api.dialects.azure.parse import (
    DEPLOYMENT_HEADER,
    EMBEDDINGS_SERVED,
    EXTRA_PARAMETERS_HEADER,
    SERVED,
    ExtraParameters,
    check_api_version,
    choose_model,
    extra_parameters,
    parse_chat,
    parse_embeddings,
)
from api.dialects.base.body import decode_object
from api.dialects.base.interface import NOTHING, Asked, Dialect, Models, ResponseEncoder
from api.dialects.base.problems import ErrorReply
from api.dialects.base.routes import Body, chat_route, embeddings_route, models_route
from api.dialects.openai.embeddings import EmbeddingEncoder, EmbeddingRequest
from api.dialects.openai.extended import ExtendedChatRequest
from api.dialects.openai.render import ChatResponseEncoder
from shared.protocol.errors import Problem, ProblemKind, refuse
from shared.protocol.request import ChatRequest

PROVIDER = "vinoqueue"


class AzureResponseEncoder(ChatResponseEncoder):
    """Encodes chats in OpenAI's form without usage details."""

    _id_prefix = ""
    _detailed = False

    def __init__(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> None:
        super().__init__(request, response_id=response_id, created=created, fingerprint=fingerprint)
        # Azure's SDK accepts no comments.
        self.ping = self._event_head + self._event_tail

    def failure(self, problem: Problem) -> bytes:
        """Encode an error event, a comment and the terminator.

        Azure's SDK ignores unknown events, so a failed response would look complete. It raises an error with the text
        of any comment, while other clients ignore comments.
        """
        error = msgspec.json.encode({"error": error_object(problem, {})})
        words = " ".join(problem.message.split())
        return b"data: " + error + b"\n\n: error: " + words.encode() + b"\n\n" + self.done


class Azure(Dialect):
    """The Azure :class:`api.dialects.base.interface.Dialect`.

    The query and the headers affect how the body is parsed, and error bodies quote parts of the request body.
    """

    parser = staticmethod(parse_chat)
    roots = ("/chat", "/embeddings", "/info", "/models")
    omits_model = True
    encoder: type[ResponseEncoder] = AzureResponseEncoder
    statuses = (*Dialect.statuses, 422)
    # Without an API version the request is one of OpenAI's.
    error_schemas: ClassVar = {"AzureError": ERROR_SCHEMA, **Dialect.error_schemas}

    def __init__(self, asked: Asked = NOTHING) -> None:
        super().__init__(asked)
        self._body: Mapping[str, object] = {}

    def parse(self, body: bytes) -> ChatRequest:
        check_api_version(self.asked.query)
        extras = extra_parameters(self.asked.headers)
        value = self._body = decode_object(body)
        model = choose_model(self.asked.headers, self.asked.fleet.serving(), value.get("model"))
        return self.parser(value, model, extras)

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponseEncoder:
        # A later error can only be one of the whole request, and quotes the beginning of its messages.
        self._body = {"messages": shown(self._body.get("messages"))}
        return super().render(request, response_id=response_id, created=created, fingerprint=fingerprint)

    def error(self, problem: Problem) -> ErrorReply:
        return error_reply(problem, self._body)

    def models(self, models: Models, body: bytes) -> bytes:
        """Encode the model that a request without a body would select. Raises :class:`RequestRefused`."""
        check_api_version(self.asked.query)
        serving = self.asked.fleet.serving()
        model = self.asked.fleet.own_name(choose_model(self.asked.headers, serving, None))
        if model not in serving:
            raise refuse(ProblemKind.MODEL_NOT_FOUND, f"The model '{model[:64]}' is not served here.", param="model")
        described = {"model_name": model, "model_type": "chat-completion", "model_provider_name": PROVIDER}
        return msgspec.json.encode(described)


class AzureEmbeddings(Azure):
    """Of vectors."""

    encoder = EmbeddingEncoder
    parser = staticmethod(parse_embeddings)


_PARAMETERS = (
    {
        "name": "api-version",
        "in": "query",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?$"},
    },
    {"name": DEPLOYMENT_HEADER, "in": "header", "schema": {"type": "string"}},
)
_EXTRA = {
    "name": EXTRA_PARAMETERS_HEADER,
    "in": "header",
    "schema": {"type": "string", "enum": list(ExtraParameters)},
}
_chat = partial(
    chat_route,
    dialect=Azure,
    # With a single model, its name may be omitted.
    body=Body(ExtendedChatRequest, "AzureChatRequest", served=SERVED, required=["messages"]),
    parameters=(*_PARAMETERS, _EXTRA),
)
_embeddings = partial(
    embeddings_route,
    dialect=AzureEmbeddings,
    body=Body(EmbeddingRequest, "AzureEmbeddingRequest", served=EMBEDDINGS_SERVED, required=["input"]),
    parameters=(*_PARAMETERS, _EXTRA),
)
_info = partial(
    models_route,
    dialect=Azure,
    summary="Describe the model that serves requests, to a client of Azure's inference API.",
    parameters=_PARAMETERS,
    errors=(400, 401, 404, 503),
)
ROUTES = (
    _chat("/chat/completions", "azureChat"),
    _chat("/models/chat/completions", "azureModelsChat"),
    _embeddings("/embeddings", "azureEmbeddings"),
    _embeddings("/models/embeddings", "azureModelsEmbeddings"),
    _info("/info", "azureInfo"),
    _info("/models/info", "azureModelsInfo"),
)
