"""The secret half of an API key: made, hashed, compared and masked here, and never kept."""

import hashlib
import hmac
import secrets

PREFIX = "sk-vq-"
"""What generated secrets begin with, so that scanners for leaked secrets can know them."""

_BYTES = 32
_SHOWN_FROM = 12
"""Shortest secret of which some characters may be shown."""


def new_secret() -> str:
    """Return a new secret with 256 random bits."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest(secret: str) -> str:
    """Return the secret's SHA-256 in hexadecimal: what is kept of it.

    A slow password hash would protect guessable secrets. These have 256 random bits, which no guessing finds however
    fast the hash is, and a hash is computed for each request.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def matches(secret_digest: str, kept: str) -> bool:
    """Whether two digests are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(secret_digest.encode(), kept.encode())


def masked(secret: str) -> str:
    """Return the secret as it may be shown to whoever sent it: its first and last characters, if it is long enough."""
    return f"{secret[:5]}***{secret[-2:]}" if len(secret) >= _SHOWN_FROM and secret.isascii() else "***"
