"""The output items of a response: reasoning, text and calls, in the order in which the model made them."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from api.dialects.base.encoded_reasoning import encode_reasoning
from api.dialects.base.interface import TokenLogprob
from api.dialects.openai.logprobs import logprob_objects

Kind = Literal["reasoning", "summary", "message", "function_call", "custom_tool_call"]
"""``summary`` is reasoning that is shown as a summary."""

PREFIXES = {"reasoning": "rs", "summary": "rs", "message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}
"""The beginnings of items' ids."""

CALLED_WITH: dict[Kind, str] = {"function_call": "arguments", "custom_tool_call": "input"}
"""The field of a call with its text."""


class OutputItem:
    """One output item, complete or growing. ``index`` is its place in the output.

    Ids depend on the response's id and on ``index`` only, so that a replayed stream has the same.
    """

    __slots__ = ("_encoded", "_logprobs", "_namespace", "_texts", "call_id", "id", "index", "kind", "name")

    def __init__(
        self,
        kind: Kind,
        response_id: str,
        index: int,
        name: str = "",
        *,
        namespace: str | None = None,
        encoded: bool = False,
    ) -> None:
        """``name`` and ``namespace`` are those of the tool. ``encoded`` is whether reasoning has encrypted content,
        too."""
        self.kind: Kind = kind
        self.index = index
        self.id = f"{PREFIXES[kind]}_{response_id}{index:04x}"
        self.call_id = f"call_{response_id}{index:04x}"
        self.name, self._namespace = name, namespace
        self._encoded = encoded
        self._texts: list[str] = []
        self._logprobs: list[msgspec.Raw] = []

    def add(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> None:
        """Append text, or a part of the call's arguments or input."""
        self._texts.append(text)
        if logprobs:
            self._logprobs += logprob_objects(logprobs)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def logprobs(self) -> list[msgspec.Raw]:
        """The log probabilities of all tokens of the text, if the request asks for them."""
        return self._logprobs

    def part(self) -> dict[str, Any]:
        """Return the item's only part of content or summary."""
        match self.kind:
            case "message":
                return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": self._logprobs}
            case "summary":
                return {"type": "summary_text", "text": self.text}
            case _:
                return {"type": "reasoning_text", "text": self.text}

    def empty_part(self) -> dict[str, Any]:
        return self.part() | {"text": "", **({"logprobs": []} if self.kind == "message" else {})}

    def object(self, status: str, *, started: bool = True) -> dict[str, Any]:
        """Return the item. Without ``started`` it has no content yet."""
        parts = [self.part()] if started else []
        encoded = {"encrypted_content": encode_reasoning(self.text)} if self._encoded and started else {}
        match self.kind:
            case "reasoning":
                return {"id": self.id, "type": "reasoning", "summary": [], "content": parts} | encoded
            case "summary":
                return {"id": self.id, "type": "reasoning", "summary": parts} | encoded
            case "message":
                return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": parts}
            case "function_call" | "custom_tool_call":
                return {
                    "id": self.id,
                    "type": self.kind,
                    "status": status,
                    "call_id": self.call_id,
                    "name": self.name,
                    CALLED_WITH[self.kind]: self.text if started else "",
                } | ({} if self._namespace is None else {"namespace": self._namespace})
