"""Response encoder for obfuscated streams, whose chunk sizes do not reveal the lengths of the tokens."""

import secrets
from collections.abc import Sequence

from api.dialects.base.interface import TokenLogprob
from api.dialects.openai.render import ChatResponseEncoder

BLOCK = 64
"""Chunks are padded to a multiple of this many bytes, so that most have the same size."""

_END = b"}\n\n"


class ObfuscatedResponseEncoder(ChatResponseEncoder):
    """Pads each delta with an ``obfuscation`` field, for ``stream_options.include_obfuscation``.

    By the reference, this prevents guessing the text from the token lengths that encrypted packet sizes reveal.
    """

    def content(self, choice: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        """Encode a chunk with a text delta."""
        return self._chunk(choice, {"content": text}, logprobs)

    def _chunk(self, choice: int, delta: dict[str, object], logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        event = super()._chunk(choice, delta, logprobs).removesuffix(_END) + b',"obfuscation":"'
        end = b'"' + _END
        filling = -(len(event) + len(end)) % BLOCK
        return event + secrets.token_hex(filling).encode()[:filling] + end
