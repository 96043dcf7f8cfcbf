"""The dialect of the Azure AI model inference API, spoken under ``/chat``, ``/info`` and ``/models``."""

from collections.abc import Callable, Collection, Mapping

from api.dialects.azure.addressing import check_api_version, choose_model
from api.dialects.azure.errors import error_reply
from api.dialects.azure.info import render_info
from api.dialects.azure.parse import extra_parameters, parse_chat
from api.dialects.azure.render import AzureResponseEncoder
from api.dialects.interface import ErrorReply, Lookup
from api.dialects.openai.body import decode_object
from shared.protocol.errors import Problem
from shared.protocol.request import ChatRequest

__all__ = ["Azure"]


class Azure:
    """One exchange in Azure's form, an :class:`api.dialects.interface.Dialect`.

    The query and the headers say how the body is to be read, and errors repeat parts of the body.
    """

    def __init__(
        self,
        query: Lookup,
        headers: Lookup,
        serving: Callable[[], Collection[str]],
        own_name: Callable[[str], str] = str,
    ) -> None:
        """``serving`` returns the own names of the models that workers serve now, ``own_name`` that of an alias."""
        self._query = query
        self._headers = headers
        self._serving = serving
        self._own_name = own_name
        self._body: Mapping[str, object] = {}

    def parse(self, body: bytes) -> ChatRequest:
        """Translate a request body. Raises :class:`RequestRefused`, and nothing else."""
        check_api_version(self._query)
        extras = extra_parameters(self._headers)
        value = self._body = decode_object(body)
        model = choose_model(self._headers, self._serving(), value.get("model"))
        return parse_chat(value, model, extras)

    def render(self, request: ChatRequest, *, answer_id: str, created: int, fingerprint: str) -> AzureResponseEncoder:
        """Begin the answer to ``request``."""
        return AzureResponseEncoder(request, answer_id=answer_id, created=created, fingerprint=fingerprint)

    def error(self, problem: Problem) -> ErrorReply:
        """Translate a failure that happens before the answer has begun."""
        return error_reply(problem, self._body)

    def info(self) -> bytes:
        """The body that describes the model which a request without a body would reach.

        Raises :class:`RequestRefused`.
        """
        check_api_version(self._query)
        serving = self._serving()
        return render_info(self._own_name(choose_model(self._headers, serving, None)), serving)
