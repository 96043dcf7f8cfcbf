"""The content of a compaction item: a summary of the conversation.

It is opaque to clients, and encoded rather than encrypted: the conversation is theirs.
"""

import base64
import binascii

import msgspec

from shared.protocol.errors import ProblemKind, refuse


class _Content(msgspec.Struct, frozen=True):
    summary: str


def encode_summary(summary: str) -> str:
    """Return the ``encrypted_content`` of a compaction item."""
    return base64.b64encode(msgspec.json.encode(_Content(summary))).decode()


def decode_summary(content: str, param: str) -> str:
    """Return the summary in the ``encrypted_content`` at the path ``param``.

    Raises :class:`RequestRefused` if this service did not make it.
    """
    try:
        return msgspec.json.decode(base64.b64decode(content, validate=True), type=_Content).summary
    except (binascii.Error, ValueError, msgspec.DecodeError):
        message = "The encrypted content could not be read: this service did not make it."
        raise refuse(ProblemKind.INVALID, message, param=param, code="invalid_encrypted_content") from None
