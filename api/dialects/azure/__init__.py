"""The dialect of the Azure AI model inference API, at ``/chat``, ``/info`` and ``/models``."""

from collections.abc import Callable, Collection, Mapping

import msgspec

from api.dialects.azure.errors import error_object, error_reply, shown
from api.dialects.azure.parse import check_api_version, choose_model, extra_parameters, parse_chat
from api.dialects.base.body import decode_object
from api.dialects.base.interface import Dialect, Lookup, ResponseEncoder
from api.dialects.base.problems import ErrorReply
from api.dialects.openai.render import ChatResponseEncoder
from shared.protocol.errors import Problem, ProblemKind, refuse
from shared.protocol.request import ChatRequest

__all__ = ["Azure"]

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
    """The Azure :class:`api.dialects.base.interface.Dialect`, instantiated for each HTTP exchange.

    The query and the headers affect how the body is parsed, and error bodies quote parts of the request body.
    """

    omits_model = True
    encoder = AzureResponseEncoder

    def __init__(
        self,
        query: Lookup,
        headers: Lookup,
        serving: Callable[[], Collection[str]],
        own_name: Callable[[str], str] = str,
    ) -> None:
        """``serving`` returns the names of the models that workers serve now; ``own_name`` resolves an alias."""
        self._query = query
        self._headers = headers
        self._serving = serving
        self._own_name = own_name
        self._body: Mapping[str, object] = {}

    def parse(self, body: bytes) -> ChatRequest:
        check_api_version(self._query)
        extras = extra_parameters(self._headers)
        value = self._body = decode_object(body)
        model = choose_model(self._headers, self._serving(), value.get("model"))
        return parse_chat(value, model, extras)

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponseEncoder:
        # A later error can only be one of the whole request, and quotes the beginning of its messages.
        self._body = {"messages": shown(self._body.get("messages"))}
        return super().render(request, response_id=response_id, created=created, fingerprint=fingerprint)

    def error(self, problem: Problem) -> ErrorReply:
        return error_reply(problem, self._body)

    def info(self) -> bytes:
        """Return the ``/info`` body of the model that a request without a body would select.

        Raises :class:`RequestRefused`.
        """
        check_api_version(self._query)
        serving = self._serving()
        model = self._own_name(choose_model(self._headers, serving, None))
        if model not in serving:
            raise refuse(ProblemKind.MODEL_NOT_FOUND, f"The model '{model[:64]}' is not served here.", param="model")
        described = {"model_name": model, "model_type": "chat-completion", "model_provider_name": PROVIDER}
        return msgspec.json.encode(described)
