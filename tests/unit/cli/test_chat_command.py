"""What ``vinoqueue chat`` sends: system message, history, images and fields."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest

from cli.base.api_client import ApiClient
from cli.chat.conversation import ChatHistory


class RecordingClient(ApiClient):
    """Answers each chat completion with two pieces, and a message ``fail`` with an error."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "")
        self.sent: list[dict[str, Any]] = []

    def connect(self, *, timeout: float | None = 60.0) -> http.client.HTTPConnection:
        """A connection that is never opened."""
        return http.client.HTTPConnection("127.0.0.1", 1, timeout=timeout)

    def send(self, *arguments: Any, **_: Any) -> Any:
        """Record the body."""
        self.sent.append(json.loads(arguments[3]))
        return self._lines(f"answer {len(self.sent)}")

    def _lines(self, text: str) -> Iterator[bytes]:
        if self.sent[-1]["messages"][-1]["content"] == "fail":
            yield b'data: {"error": {"message": "no worker"}}\n'
        for piece in text.partition(" "):
            yield f"data: {json.dumps({'choices': [{'delta': {'content': piece}}]})}\n".encode()


def said(client: RecordingClient) -> list[tuple[str, object]]:
    return [(message["role"], message["content"]) for message in client.sent[-1]["messages"]]


def test_each_request_has_the_system_message_and_the_history(tmp_path: Path) -> None:
    client = RecordingClient()
    chat = ChatHistory(client, "tiny", {"temperature": 0.5}, max_tokens=9, system="Be brief.")
    assert "".join(piece.text for piece in chat.ask("one")) == "answer 1"
    assert client.sent[0] == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "one"}],
        "stream": True,
        "max_tokens": 9,
        "temperature": 0.5,
    }
    with pytest.raises(click.ClickException, match="no worker"):
        list(chat.ask("fail"))
    with closing(chat.ask("two")) as pieces:
        next(pieces)
    image = tmp_path / "a.png"
    image.write_bytes(b"png")
    chat.system = "Be long."
    list(chat.ask("three", [image]))
    assert said(client)[:-1] == [
        ("system", "Be long."), ("user", "one"), ("assistant", "answer 1"), ("user", "two"), ("assistant", "answer"),
    ]  # fmt: skip
    picture, text = client.sent[-1]["messages"][-1]["content"]
    assert picture["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert text == {"type": "text", "text": "three"}
    chat.clear()
    list(chat.ask("four"))
    assert said(client) == [("system", "Be long."), ("user", "four")]
