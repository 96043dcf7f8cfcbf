"""What an engine leaves for later is made while it is idle, and never instead of a command."""

import socket
from collections.abc import Iterator
from unittest.mock import Mock

import msgspec
import pytest

from worker.engine.child import serve
from worker.engine.protocol import Cancel, Command
from worker.processes.channel import ChildChannel
from worker.processes.messages import encode_message


def test_parts_are_made_between_commands() -> None:
    ours, theirs = socket.socketpair()
    done: list[object] = []

    def finish_loading() -> Iterator[bool]:
        done.append("first part")
        ours.sendall(encode_message(Cancel(2)))
        yield False
        done.append("second part")
        ours.close()

    engine = Mock(finish_loading=finish_loading, busy=lambda: False, cancel=done.append)
    ours.sendall(encode_message(Cancel(1)))
    with theirs, pytest.raises(EOFError):
        serve(engine, ChildChannel(theirs, msgspec.msgpack.Decoder(Command)))
    assert done == [1, "first part", 2, "second part"]
