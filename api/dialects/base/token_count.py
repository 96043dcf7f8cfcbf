"""Requests of which only the prompt's tokens are counted."""

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest, Tokenization


def counting(request: ChatRequest) -> ChatRequest:
    """Return ``request`` as one for the tokens of its messages. Raises :class:`RequestRefused` if there are images."""
    for image in request.images:
        reason = "Not supported: the tokens of images are known only after the model has computed them."
        raise refuse(ProblemKind.INVALID, reason, param=image.param)
    # Chat templates write the special tokens themselves.
    return msgspec.structs.replace(request, tokenization=Tokenization(add_special_tokens=False))
