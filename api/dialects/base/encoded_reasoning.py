"""Reasoning in a form that clients only send back: Anthropic's signatures, and OpenAI's ``encrypted_content``.

It is encoded rather than encrypted: the conversation is the client's.
"""

import base64
import binascii

import msgspec


class _Content(msgspec.Struct, frozen=True):
    reasoning: str


def encode_reasoning(reasoning: str) -> str:
    """Return text that contains ``reasoning``."""
    return base64.b64encode(msgspec.json.encode(_Content(reasoning))).decode()


def decode_reasoning(encoded: str) -> str:
    """Return the reasoning in a text; empty if there is none, as in those of other services."""
    try:
        return msgspec.json.decode(base64.b64decode(encoded, validate=True), type=_Content).reasoning
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return ""
