"""Response encoder of the Responses API: response objects, and streams of named events."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from api.dialects.base.interface import Choice, ResponseEncoder, TokenLogprob, Usage
from api.dialects.base.problems import FORMS, error_object
from api.dialects.openai.logprobs import logprob_objects
from api.dialects.responses.offered_tools import unqualified_name
from api.dialects.responses.output import CALLED_WITH, Kind, OutputItem
from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import FinishReason
from shared.protocol.request import ChatRequest, fill_in

ENCODED = "reasoning.encrypted_content"
"""The value of ``include`` that asks for reasoning that clients can send back without showing it."""

_TEXTS: dict[Kind, tuple[str, str, str]] = {
    "message": ("output_text", "content_part", "content_index"),
    "reasoning": ("reasoning_text", "content_part", "content_index"),
    "summary": ("reasoning_summary_text", "reasoning_summary_part", "summary_index"),
}
"""Names of the events about the text of an item and about its only part, and the field with the part's index."""

_encode = msgspec.json.Encoder().encode


class _Ended(msgspec.Struct):
    """The field of a stored response that decides on its last event."""

    status: str


class ResponsesEncoder(ResponseEncoder):
    """An :class:`api.dialects.base.interface.ResponseEncoder` for one response, which has one choice.

    Reasoning, text and each function call are output items. An item grows until another one begins.
    """

    def __init__(
        self, request: ChatRequest, *, response_id: str, created: int, after: int = -1, done: bytes = b""
    ) -> None:
        """Events with numbers up to ``after`` are counted but not encoded. ``done`` ends a stream."""
        self.done = done
        self._after = after
        self._background = request.response.background
        self._response_id = response_id
        echoed: dict[str, Any] = msgspec.json.decode(request.response.echoed or "{}")
        self._encoded = ENCODED in echoed.pop("include", ())
        # An API key may have another priority than the client requested.
        tier = "default" if request.tier in (None, "auto", "batch") else request.tier
        self._head = {"id": f"resp_{response_id}", "object": "response", "created_at": created, "model": request.model}
        self._echoed = echoed | {"background": self._background, "store": request.store, "service_tier": tier}
        sampling = fill_in(request.sampling, request.defaults)
        for name, used in (("temperature", sampling.temperature), ("top_p", sampling.top_p)):
            if echoed.get(name) is None:
                self._echoed[name] = 1.0 if used is None else used
        self._reasoning: Kind = "summary" if echoed.get("reasoning", {}).get("summary") else "reasoning"
        self._namespaces = {tool.name: tool.namespace for tool in request.tools if tool.namespace is not None}
        """The namespaces of functions, by the functions' names for the model."""
        self._custom = {tool.name for tool in request.tools if tool.custom is not None}
        self._sequence = 0
        self._items: list[dict[str, Any]] = []
        """The complete items."""
        self._item: OutputItem | None = None
        """The growing item."""
        self._delta_head = b""
        self._reason: FinishReason = "stop"
        self.document = b""
        """The response as JSON once it has ended."""

    def queued(self) -> bytes:
        """Encode the first events of a background response."""
        response = self._response("queued")
        return self._event("response.created", response=response) + self._event("response.queued", response=response)

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        """Encode the first events, or those that follow :meth:`queued`."""
        response = self._response("in_progress")
        created = b"" if self._background else self._event("response.created", response=response)
        return created + self._event("response.in_progress", response=response)

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a text delta. Hot path: once per token."""
        opened = b"" if self._item is not None and self._item.kind == "message" else self._open("message")
        return opened + self._grow(text, logprobs)

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        opened = b"" if self._item is not None and self._item.kind == self._reasoning else self._open(self._reasoning)
        return opened + self._grow(text)

    def call(self, choice: int, index: int, call_id: str, name: str) -> bytes:
        """Encode the start of a call. Its id is derived from the response's."""
        return self._open("custom_tool_call" if name in self._custom else "function_call", name)

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        return self._grow(text)

    def closing(self, choice: int, reason: FinishReason, stop: str = "") -> bytes:
        """Encode the end of the last item. The end of the response follows with the usage."""
        self._reason = reason
        opened = b"" if self._items or self._item is not None else self._open("message")
        return opened + self._close(_status(reason))

    def usage(self, usage: Usage) -> bytes:
        """Encode the end of the response."""
        status = _status(self._reason)
        return self._end(f"response.{status}", self._ended(status, usage))

    def failure(self, problem: Problem) -> bytes:
        """Encode the end of a response that has failed, perhaps before it has started: SDKs need a first event."""
        created = b"" if self._sequence else self._event("response.created", response=self._response("in_progress"))
        error = {"code": _code(problem.kind), "message": problem.message}
        return created + self._end("response.failed", self._response("failed", error=error))

    def ending(self, document: bytes) -> bytes:
        """Encode the last event of a response that has ended as the stored ``document`` says."""
        status = msgspec.json.decode(document, type=_Ended).status
        # The reference has no event for a cancelled response.
        kind = "response.incomplete" if status == "cancelled" else f"response.{status}"
        return self._event(kind, response=msgspec.Raw(document))

    def error(self, problem: Problem) -> bytes:
        """Encode an error that ends a stream although the response may continue.

        The SDK's type has its fields in the event, the service and some clients have them in ``error``.
        """
        code = _code(problem.kind)
        fields = error_object(problem) | {"code": code}
        shown = {name: fields[name] for name in ("code", "message", "param")}
        return self._event("error", **shown, error=fields)

    def unfinished(self, status: str) -> bytes:
        """Return the response so far."""
        return _encode(self._response(status))

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        if not self.document:
            (choice,) = choices
            self.whole(choice)
            self.usage(usage)
        return self.document

    def _end(self, kind: str, response: dict[str, Any]) -> bytes:
        self.document = _encode(response)
        return self._event(kind, response=msgspec.Raw(self.document))

    def _ended(self, status: str, usage: Usage) -> dict[str, Any]:
        return self._response(
            status,
            completed_at=int(time.time()) if status == "completed" else None,
            incomplete_details={"reason": "max_output_tokens"} if status == "incomplete" else None,
            usage=usage_object(usage),
        )

    def _response(self, status: str, **fields: Any) -> dict[str, Any]:
        growing = [] if self._item is None else [self._item.object("incomplete")]
        return (
            self._head
            | {"status": status, "completed_at": None, "error": None, "incomplete_details": None, "usage": None}
            | {"output": [*self._items, *growing], "access_programs": None}
            | fields
            | self._echoed
        )

    def _open(self, kind: Kind, name: str = "") -> bytes:
        closed = self._close("completed")
        namespace = self._namespaces.get(name)
        item = self._item = OutputItem(
            kind,
            self._response_id,
            len(self._items),
            name if namespace is None else unqualified_name(namespace, name),
            namespace=namespace,
            encoded=self._encoded,
        )
        added = self._event(
            "response.output_item.added", output_index=item.index, item=item.object("in_progress", started=False)
        )
        place = {"item_id": item.id, "output_index": item.index}
        if kind in CALLED_WITH:
            delta = f"response.{kind}_{CALLED_WITH[kind]}.delta"
        else:
            text, part, index = _TEXTS[kind]
            delta = f"response.{text}.delta"
            place[index] = 0
            added += self._event(f"response.{part}.added", **place, part=item.empty_part())
        fields = _encode({"type": delta} | place)[:-1]
        self._delta_head = b"event: %b\ndata: %b" % (delta.encode(), fields)
        return closed + added

    def _grow(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        item = self._item
        if item is None:
            raise AssertionError("no item is open")
        item.add(text, logprobs)
        shown = b""
        if item.kind == "message":
            shown = b',"logprobs":' + (_encode(logprob_objects(logprobs)) if logprobs else b"[]")
        number = self._sequence
        self._sequence = number + 1
        if number <= self._after:
            return b""
        return b'%b,"delta":%b%b,"sequence_number":%d}\n\n' % (self._delta_head, _encode(text), shown, number)

    def _close(self, status: str) -> bytes:
        item = self._item
        if item is None:
            return b""
        self._item = None
        if item.kind == "function_call" and not _is_json(item.text):
            status = "incomplete"
        place: dict[str, Any] = {"item_id": item.id, "output_index": item.index}
        if item.kind in CALLED_WITH:
            field = CALLED_WITH[item.kind]
            named = {"name": item.name} if item.kind == "function_call" else {}
            ended = self._event(f"response.{item.kind}_{field}.done", **place, **named, **{field: item.text})
        else:
            text, part, index = _TEXTS[item.kind]
            place[index] = 0
            logprobs = {"logprobs": item.logprobs} if item.kind == "message" else {}
            cut = {"status": "incomplete"} if item.kind == "summary" and status == "incomplete" else {}
            ended = self._event(f"response.{text}.done", **place, text=item.text, **logprobs)
            ended += self._event(f"response.{part}.done", **place, part=item.part(), **cut)
        whole = item.object(status)
        self._items.append(whole)
        return ended + self._event("response.output_item.done", output_index=item.index, item=whole)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._sequence
        self._sequence = number + 1
        if number <= self._after:
            return b""
        body = _encode({"type": kind} | fields | {"sequence_number": number})
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)


def _is_json(text: str) -> bool:
    """Return whether ``text`` is JSON. The arguments of a call that was cut or malformed are not."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _status(reason: FinishReason) -> str:
    return "incomplete" if reason in ("length", "cut") else "completed"


def _code(kind: ProblemKind) -> str:
    """Return the code of a failed response."""
    return {400: "invalid_prompt", 429: "rate_limit_exceeded"}.get(FORMS[kind].status, "server_error")


def usage_object(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
