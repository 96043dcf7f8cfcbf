"""The OpenAI dialects, at ``/v1``."""

from api.dialects.base.interface import Dialect
from api.dialects.base.routes import Body, chat_route, embeddings_route, results_route
from api.dialects.openai.completions_parse import parse_completion
from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.embeddings import EmbeddingRequest, OpenAIEmbeddings
from api.dialects.openai.extensions import ServedChatRequest, ServedCompletionRequest
from api.dialects.openai.parse import parse_chat
from api.dialects.openai.render import ChatResponseEncoder, ObfuscatedResponseEncoder
from api.dialects.openai.tokens import (
    DetokenizeRequest,
    Templates,
    Texts,
    TokenizeRequest,
    TokenizerInfo,
    TokenizerInfoQuery,
    Tokens,
)
from shared.protocol.request import ChatRequest


class OpenAI(Dialect):
    """The chat completions :class:`api.dialects.base.interface.Dialect` of OpenAI."""

    def parse(self, body: bytes) -> ChatRequest:
        return parse_chat(body, self.asked.deployment)

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ChatResponseEncoder:
        form = ObfuscatedResponseEncoder if request.response.obfuscate else ChatResponseEncoder
        return form(request, response_id=response_id, created=created, fingerprint=fingerprint)


class OpenAICompletions(Dialect):
    """The plain completions :class:`api.dialects.base.interface.Dialect` of OpenAI."""

    encoder = CompletionResponseEncoder

    def parse(self, body: bytes) -> ChatRequest:
        return parse_completion(body, self.asked.deployment)


CHAT, _COMPLETION = (
    Body(ServedChatRequest, "ChatCompletionRequest"),
    Body(ServedCompletionRequest, "CompletionRequest"),
)
ROUTES = (
    chat_route("/v1/chat/completions", "createChatCompletion", OpenAI, CHAT, batched=OpenAI),
    chat_route("/v1/completions", "createCompletion", OpenAICompletions, _COMPLETION, batched=OpenAICompletions),
    embeddings_route(
        "/v1/embeddings", "createEmbedding", OpenAIEmbeddings, Body(EmbeddingRequest), batched=OpenAIEmbeddings
    ),
    results_route(
        "/tokenize",
        "tokenize",
        Tokens,
        body=Body(TokenizeRequest),
        summary="Return the tokens of a prompt or of messages.",
    ),
    results_route(
        "/detokenize", "detokenize", Texts, body=Body(DetokenizeRequest), summary="Return the text of tokens."
    ),
    results_route(
        "/apply-template",
        "applyTemplate",
        Templates,
        body=CHAT,
        summary="Return what the model's chat template makes of a chat completion's body, as llama.cpp does.",
    ),
    results_route(
        "/tokenizer_info",
        "tokenizerInfo",
        TokenizerInfo,
        "GET",
        query=TokenizerInfoQuery,
        summary="Return the tokenizer's special tokens and chat template, as vLLM does.",
    ),
)
