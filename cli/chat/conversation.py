"""A conversation with a model, whose responses are streamed."""

import base64
import mimetypes
from collections.abc import Generator, Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click
import msgspec

from cli.base.api_client import ApiClient
from shared.runtime.logs import escaped


class Piece(NamedTuple):
    kind: Literal["text", "reasoning"]
    text: str


class ChatHistory:
    """The messages so far, and the fields that are sent with each request."""

    def __init__(
        self, api: ApiClient, model: str, fields: Mapping[str, object], *, max_tokens: int, system: str = ""
    ) -> None:
        """``max_tokens`` limits each response. ``fields`` are further ones of a chat completion."""
        self._api = api
        self._model = model
        self._fields = fields
        self.system = system
        self.max_tokens = max_tokens
        self.cut_off = False
        """Whether the last response ended because it had ``max_tokens``."""
        self._messages: list[dict[str, object]] = []

    def clear(self) -> None:
        """Forget all messages but the system message."""
        self._messages.clear()

    def ask(self, text: str, images: Sequence[Path] = ()) -> Generator[Piece]:
        """Send a message and yield its response as it comes. Raises :class:`click.ClickException`.

        If the iteration is left early, the request is cancelled, and the response so far remains in the conversation. A
        message without any response does not remain.
        """
        content: object = [*map(_image, images), {"type": "text", "text": text}] if images else text
        self._messages.append({"role": "user", "content": content})
        response = ""
        try:
            for piece in self._stream():
                if piece.kind == "text":
                    response += piece.text
                yield piece
        finally:
            if response:
                self._messages.append({"role": "assistant", "content": response})
            else:
                self._messages.pop()

    def _stream(self) -> Iterator[Piece]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages = [*system, *self._messages]
        limit = {"stream": True, "max_tokens": self.max_tokens}
        asked = {"model": self._model, "messages": messages, **limit, **self._fields}
        self.cut_off = False
        # A request may wait in the queue for longer than any timeout.
        connection = self._api.connect(timeout=None)
        try:
            response = self._api.send(
                connection,
                "POST",
                "/v1/chat/completions",
                msgspec.json.encode(asked),
                {"content-type": "application/json"},
            )
            for line in response:
                if line.startswith(b"data: {"):
                    yield from self._pieces(msgspec.json.decode(line[6:]))
        except (OSError, HTTPException, msgspec.DecodeError) as error:
            raise self._api.unreachable(error) from None
        finally:
            connection.close()

    def _pieces(self, chunk: dict[str, Any]) -> Iterator[Piece]:
        """Yield what a chunk of the stream adds. Raises :class:`click.ClickException` if it is an error."""
        if "error" in chunk:
            raise click.ClickException(escaped(str(chunk["error"]["message"])))
        for choice in chunk["choices"]:
            if reasoning := choice["delta"].get("reasoning_content"):
                yield Piece("reasoning", reasoning)
            if text := choice["delta"].get("content"):
                yield Piece("text", text)
            self.cut_off |= choice.get("finish_reason") == "length"


def _image(file: Path) -> dict[str, object]:
    """Return the part of a message that holds an image file. Raises :class:`click.ClickException`."""
    try:
        data = base64.b64encode(file.read_bytes()).decode()
    except OSError as error:
        raise click.ClickException(f"The image can't be read: {error}") from None
    kind = mimetypes.guess_type(file.name)[0] or "image/png"
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
