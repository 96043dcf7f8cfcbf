"""Signatures of reasoning. They prove nothing; that of reasoning which is not shown contains it, for the next turn."""

import base64
import binascii

import msgspec


class _Content(msgspec.Struct, frozen=True):
    reasoning: str


def sign(reasoning: str) -> str:
    """Return a signature that contains ``reasoning``."""
    return base64.b64encode(msgspec.json.encode(_Content(reasoning))).decode()


def signed_reasoning(signature: str) -> str:
    """Return the reasoning in a signature; empty if there is none, as in those of other services."""
    try:
        return msgspec.json.decode(base64.b64decode(signature, validate=True), type=_Content).reasoning
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return ""
