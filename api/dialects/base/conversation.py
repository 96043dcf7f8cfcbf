"""Conversations in the internal form: messages with plain text, images, and tool calls with their results."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest, Image, Message, Role, ToolCall

_OTHER_SCHEME = re.compile(r"(?!(?:https?|data):)([a-z][a-z0-9+.-]*):", re.IGNORECASE)

Part = str | Image | None
"""A text, an image, or a part of another kind, which only separates texts."""


class Conversation:
    """Builds the messages of a request, turn by turn.

    Chat templates have no images in the results of tools. They come first in what the user says next.
    """

    def __init__(self, *, joined: Collection[Role] = ()) -> None:
        """Consecutive turns of a role in ``joined`` become one message, because some templates take only turns that
        alternate."""
        self._joined = joined
        self._turns: list[_Turn] = []
        self._images: list[Image] = []
        """Images of results, for the next message of the user."""
        self.tools: dict[str, str] = {}
        """The tool of each call, by the call's id."""
        self.unanswered: dict[str, str] = {}
        """The path of each call without a result, by the call's id."""

    def system(self, parts: Iterable[Part], *, role: Role = "system", name: str | None = None) -> None:
        self._flush()
        self._add(_Turn(role, name, _Content(parts)))

    def user(self, parts: Iterable[Part], *, name: str | None = None) -> None:
        images, self._images = self._images, []
        self._add(_Turn("user", name, _Content((*images, *parts))))

    def assistant(
        self,
        text: str = "",
        *,
        path: str = "",
        reasoning: str | None = None,
        calls: Sequence[ToolCall] = (),
        name: str | None = None,
    ) -> None:
        """Add output of the model. ``path`` is that of its calls in the request."""
        self._flush()
        reasonings = [] if reasoning is None else [reasoning]
        self._add(_Turn("assistant", name, _Content((text,)), reasonings, list(calls)))
        for call in calls:
            self.tools[call.id] = call.name
            self.unanswered[call.id] = path

    def result(self, call_id: str | None, parts: Iterable[Part], *, name: str | None = None) -> None:
        """Add the result of a call. ``name`` is the tool's, by default that of the call."""
        texts = []
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
            elif part is not None:
                self._images.append(part)
        # Some chat templates need the tool's name with its result.
        name = name or self.tools.get(call_id or "")
        self._add(_Turn("tool", name, _Content(("\n".join(texts),)), call_id=call_id))
        self.unanswered.pop(call_id or "", None)

    def finish(self) -> tuple[Message, ...]:
        self._flush()
        return tuple(turn.message() for turn in self._turns)

    def _flush(self) -> None:
        if self._images:
            self.user(())

    def _add(self, turn: "_Turn") -> None:
        if turn.role in self._joined and self._turns and self._turns[-1].role == turn.role:
            self._turns[-1].extend(turn)
        else:
            self._turns.append(turn)


def image(url: str, param: str, *, low: bool = False) -> Image:
    """Return an image part. ``param`` is its path in the request, ``low`` whether low detail is enough.

    Raises :class:`RequestRefused` for a URL with a scheme that no image can have.
    """
    check_scheme(url, param)
    return Image(param=param, low=low, url=url)


def check_scheme(url: str, param: str) -> None:
    """Raise :class:`RequestRefused`, which names ``param``, for a URL with a scheme that no image can have.

    Among them is that of local files (:data:`shared.protocol.request.LOCAL`), which only the service itself writes.
    """
    if scheme := _OTHER_SCHEME.match(url):
        raise refuse(
            ProblemKind.INVALID,
            f"Invalid image: the URL has the scheme '{scheme[1][:64]}': expected https, http or data.",
            param=param,
        )


def continued(request: ChatRequest, field: str) -> ChatRequest:
    """Return ``request`` with an output that continues its last message. ``field`` asks for it.

    Raises :class:`RequestRefused`, which names ``field``, if the last message is not an answer, and for what is about
    the whole answer: a constraint, or a required call.
    """
    last = request.messages[-1] if request.messages else None
    constraint = "tool_choice" if request.tool_choice == "required" else request.constraint and request.constraint.param
    if last is None or last.role != "assistant":
        reason = "the last message is not the assistant's"
    elif last.tool_calls:
        reason = "the last message ends with tool calls"
    elif constraint:
        reason = f"it can't be combined with '{constraint}', which is about the whole answer"
    else:
        return replace(request, turn="continued")
    raise refuse(ProblemKind.INVALID, f"Invalid '{field}': {reason}.", param=field)


def flatten(parts: Iterable[Part]) -> str:
    return _Content(parts).text


class _Content:
    """The parts of a message as one text, with the images' places in it. Adjacent texts are joined with line breaks.

    Text chat templates expect one string, and render a list as its Python repr. vLLM, llama.cpp's server and OpenVINO
    Model Server also join parts with a line break, so the prompt is the same on all of them.
    """

    def __init__(self, parts: Iterable[Part]) -> None:
        self._texts: list[str] = []
        self._size = 0
        self.images: list[Image] = []
        after_text = False
        for part in parts:
            if isinstance(part, str):
                self._append(f"\n{part}" if after_text else part)
            elif part is not None:
                self.images.append(replace(part, at=self._size))
            after_text = isinstance(part, str)

    def extend(self, other: "_Content") -> None:
        """Append the content of another turn, its text on a new line."""
        if other._size and self._size:
            self._append("\n")
        self.images += (replace(image, at=image.at + self._size) for image in other.images)
        self._append(other.text)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def _append(self, text: str) -> None:
        self._texts.append(text)
        self._size += len(text)


@dataclass
class _Turn:
    """A message that may still grow."""

    role: Role
    name: str | None
    content: _Content
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    call_id: str | None = None

    def extend(self, turn: "_Turn") -> None:
        self.content.extend(turn.content)
        self.reasoning += turn.reasoning
        self.calls += turn.calls

    def message(self) -> Message:
        return Message(
            role=self.role,
            content=self.content.text,
            images=tuple(self.content.images),
            name=self.name,
            reasoning="\n".join(self.reasoning) if self.reasoning else None,
            tool_calls=tuple(self.calls),
            tool_call_id=self.call_id,
        )
