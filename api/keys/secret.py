"""Secrets of API keys: generating, hashing, comparing and masking. Secrets are never stored."""

import hashlib
import hmac
import secrets

PREFIX = "sk-vq-"
"""Prefix of generated secrets, by which secret scanners recognise them."""

_BYTES = 32
_SHOWN_FROM = 12
"""Minimum length of a secret that is shown in part."""


def new_secret() -> str:
    """Return a new secret with 256 random bits."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest(secret: str) -> str:
    """Return the secret's SHA-256 in hexadecimal, which is stored instead of it.

    A slow password hash would only protect guessable secrets. These have 256 random bits, and every request computes
    the hash.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def matches(first: str, second: str) -> bool:
    """Compare two digests in constant time."""
    return hmac.compare_digest(first.encode(), second.encode())


def masked(secret: str) -> str:
    """Return the secret masked for error messages: its first and last characters, if it is long enough."""
    return f"{secret[:5]}***{secret[-2:]}" if len(secret) >= _SHOWN_FROM and secret.isascii() else "***"
