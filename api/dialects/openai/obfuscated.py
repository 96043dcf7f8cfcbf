"""Streams whose chunks do not tell by their sizes what is in them."""

import secrets
from collections.abc import Sequence

from api.dialects.interface import TokenLogprob
from api.dialects.openai.render import ChatResponseEncoder

BLOCK = 64
"""Chunks are filled up to a multiple of so many bytes, so that most of them have the same size."""

_END = b"}\n\n"


class ObfuscatedResponseEncoder(ChatResponseEncoder):
    """Fills up each delta with an ``obfuscation`` field, as ``stream_options.include_obfuscation`` asks for.

    The reference: who can see the sizes of encrypted packets may guess an answer from the lengths of its tokens.
    """

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """A chunk with more text."""
        return self._chunk(choice, {"content": text}, logprobs)

    def _chunk(self, choice: int, delta: dict[str, object], logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        event = super()._chunk(choice, delta, logprobs).removesuffix(_END) + b',"obfuscation":"'
        end = b'"' + _END
        filling = -(len(event) + len(end)) % BLOCK
        return event + secrets.token_hex(filling).encode()[:filling] + end
