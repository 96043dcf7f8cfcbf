"""Requests of which only the prompt's tokens are counted."""

import msgspec

from shared.protocol.request import ChatRequest, Tokenize


def counting(request: ChatRequest) -> ChatRequest:
    """Return ``request`` as one for the tokens of its messages. Chat templates write the special tokens themselves."""
    return msgspec.structs.replace(request, work=Tokenize(add_special_tokens=False))
