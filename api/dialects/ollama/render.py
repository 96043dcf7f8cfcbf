"""Response encoders of Ollama's API: a JSON object, or a stream with one on each line."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from api.dialects.base.interface import Call, Choice, ResponseEncoder, TokenLogprob, Usage
from api.dialects.openai.logprobs import logprob_objects
from shared.protocol.errors import Problem
from shared.protocol.events import FinishReason
from shared.protocol.request import ChatRequest

_encode = msgspec.json.Encoder().encode


class ChatEncoder(ResponseEncoder):
    """An :class:`api.dialects.base.interface.ResponseEncoder` for one chat, which has one choice.

    A call is sent whole, because its arguments are an object. One that was cut is left out: clients run what they get.
    """

    done = b""

    def __init__(self, request: ChatRequest, *, at: float) -> None:
        """``at`` is when the request was received (monotonic seconds)."""
        self._model, self._at = request.model, at
        self._begun = time.monotonic()
        """When the first token had arrived."""
        self._call: tuple[str, str, list[str]] | None = None  # Its arguments are incomplete.
        self._calls, self._reason = 0, "stop"
        self.ping = self._line(self._said())

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        return self._output(self._said(text, logprobs=logprobs))

    def reasoning(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        return self._output(self._said(thinking=text, logprobs=logprobs))

    def call(self, choice: int, index: int, call_id: str, name: str) -> bytes:
        ended = self._ended_call()
        self._call = (call_id, name, [])
        return ended

    def arguments(self, choice: int, index: int, text: str) -> bytes:
        if self._call is not None:
            self._call[2].append(text)
        return b""

    def closing(self, choice: int, reason: FinishReason, stop: str = "") -> bytes:
        self._reason = reason
        return self._ended_call()

    def usage(self, usage: Usage) -> bytes:
        """Encode the last line."""
        return self._line(self._said() | self._ending(usage))

    def failure(self, problem: Problem) -> bytes:
        return _encode({"error": problem.message}) + b"\n"

    def completion(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        (choice,) = choices
        self._reason = choice.reason
        said = self._said(choice.text, choice.reasoning, choice.calls, choice.logprobs or ())
        return self._line(said | self._ending(usage))

    def _said(
        self, text: str = "", thinking: str = "", calls: Sequence[Call] = (), logprobs: Sequence[TokenLogprob] = ()
    ) -> dict[str, Any]:
        """Return the fields with output."""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thinking:
            message["thinking"] = thinking
        if whole := [found for call in calls if (found := self._object(call)) is not None]:
            message["tool_calls"] = whole
        return {"message": message} | ({"logprobs": logprob_objects(logprobs)} if logprobs else {})

    def _object(self, call: Call) -> dict[str, object] | None:
        """Return a call, or None if it was cut."""
        try:
            arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
        except msgspec.DecodeError:
            return None
        self._calls += 1
        return {"id": call.id, "function": {"index": self._calls - 1, "name": call.name, "arguments": arguments}}

    def _output(self, said: dict[str, Any]) -> bytes:
        return self._ended_call() + self._line(said)

    def _ended_call(self) -> bytes:
        call, self._call = self._call, None
        said = self._said(calls=[Call(id=call[0], name=call[1], arguments="".join(call[2]))] if call else ())
        return self._output(said) if "tool_calls" in said["message"] else b""

    def _line(self, fields: dict[str, Any]) -> bytes:
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return _encode({"model": self._model, "created_at": now, "done": False} | fields) + b"\n"

    def _ending(self, usage: Usage) -> dict[str, object]:
        """Return the reason of the end, token counts and nanoseconds. Those of the prompt include the time in the queue
        and, if it was not loaded, that of the model, which are not known apart."""
        now = time.monotonic()
        return {
            "done": True,
            "done_reason": "length" if self._reason in ("length", "cut") else "stop",
            "total_duration": round((now - self._at) * 1e9),
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_duration": round((self._begun - self._at) * 1e9),
            "eval_count": usage.completion_tokens,
            "eval_duration": round((now - self._begun) * 1e9),
        }


class GenerateEncoder(ChatEncoder):
    """The same for a prompt, whose output is no message."""

    def _line(self, fields: dict[str, Any]) -> bytes:
        message = fields.pop("message")
        fields["response"] = message["content"]
        return super()._line({name: message[name] for name in message if name == "thinking"} | fields)
