"""The MessagePack stream between the supervisor and a subprocess: length-prefixed messages (4 bytes, big endian)."""

import struct
from typing import Generic, TypeVar

import msgspec

from shared.protocol.errors import Problem

READ_SIZE = 1 << 16
"""Size of the read buffers in bytes. A much larger one would be mapped and unmapped by malloc on every read."""

_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()

In = TypeVar("In")
Body = TypeVar("Body")


class LoadFailed(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The only message of a subprocess that can't load. ``message`` is human-readable."""

    message: str


class Loaded(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A service has loaded, and takes calls."""


class Replied(msgspec.Struct, Generic[Body], frozen=True, array_like=True, tag=2):
    """The reply of a service to its call, and the CPU time that the call took in seconds."""

    body: Body
    seconds: float


class CallRefused(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The call of a service is refused. ``seconds`` is the CPU time that it took."""

    problem: Problem
    seconds: float


def encode_message(message: object) -> bytes:
    """Return a message with its length prefix."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class MessageReader(Generic[In]):
    """Incremental decoder of the stream."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[In]) -> None:
        self._decoder = decoder
        self._partial = bytearray()
        self._wanted = 4
        """Bytes to wait for until the next message may be complete."""

    @property
    def partial(self) -> bool:
        """Whether a part of a message has been fed."""
        return bool(self._partial)

    def feed(self, data: bytes | memoryview) -> list[In]:
        """Return the messages completed by ``data``.

        :class:`msgspec.Raw` fields of the messages refer to the memory of ``data``. Raises
        :class:`msgspec.DecodeError` on invalid bytes.
        """
        if self._partial:
            self._partial += data
            if len(self._partial) < self._wanted:
                return []
            data = memoryview(self._partial)
        messages = []
        start = 0
        self._wanted = 4
        view = memoryview(data)
        while len(data) - start >= 4:
            (length,) = _LENGTH.unpack_from(data, start)
            end = start + 4 + length
            if len(data) < end:
                self._wanted = end - start
                break
            messages.append(self._decoder.decode(view[start + 4 : end]))
            start = end
        # A new object: fields of the messages may refer to the old one.
        self._partial = bytearray(view[start:])
        return messages
