"""The prefix gate: holds back prompts with a shared prefix until the first of them is computed.

The engine's prefix cache holds a prefix only after its prefill. Of several prompts added together, each computes the
whole prefix: four cold prompts that share 1,500 tokens take four times as long as one. With the gate, they take a fifth
longer than one.

Other requests do not wait for lines of batches, which they preempt (:mod:`worker.jobs.preemption`).
"""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice

_BLOCK = 256
"""Tokens per block. A block's digest covers all tokens before it too. Shorter prefixes are not waited for."""

_MAX_COMPUTED = 4096
"""Maximum number of blocks assumed to be cached (a million tokens, about what caches hold)."""


class PrefixGate:
    """Tracks which prefixes the engine has computed, and which it is computing."""

    def __init__(self, *, caching: bool = True) -> None:
        """``caching``: whether the engine has a prefix cache. Without one, the gate is always open."""
        self._caching = caching
        self._computing: dict[bytes, int] = {}
        self._blocks: dict[int, list[bytes]] = {}
        self._lines: set[int] = set()
        """Those of the sequences in ``_blocks`` that are lines of batches."""
        self._computed: OrderedDict[bytes, None] = OrderedDict()
        self._waiting: dict[int, tuple[int, asyncio.Future[None]]] = {}

    async def acquire(self, number: int, tokens: Sequence[int], *, line: bool = False) -> None:
        """Wait while another sequence computes a prefix of the prompt ``tokens`` of sequence ``number``.

        ``line``: it is a line of a batch.

        It does not wait for a prompt of which the shared prefix is less than half. :meth:`release` must follow, also
        after a cancellation.
        """
        blocks = _digests(tokens) if self._caching else []
        while first := self._blocking_sequence(blocks, line=line):
            released = asyncio.get_running_loop().create_future()
            self._waiting[number] = (first, released)
            try:
                await released
            finally:
                del self._waiting[number]
        self._blocks[number] = blocks
        if line:
            self._lines.add(number)
        for block in blocks:
            if block not in self._computed:
                self._computing[block] = number

    def release(self, number: int, *, computed: bool) -> None:
        """Wake the sequences that wait for sequence ``number``. ``computed``: whether it got its first token."""
        self._lines.discard(number)
        for block in self._blocks.pop(number, ()):
            if self._computing.get(block) == number:
                del self._computing[block]
            if computed:
                self._computed[block] = None
                self._computed.move_to_end(block)
        for block in list(islice(self._computed, max(0, len(self._computed) - _MAX_COMPUTED))):
            del self._computed[block]
        for first, released in self._waiting.values():
            if first == number and not released.done():
                released.set_result(None)

    def forget(self) -> None:
        """Assume an empty prefix cache: the engine was replaced."""
        self._computed.clear()

    def _blocking_sequence(self, blocks: Sequence[bytes], *, line: bool) -> int | None:
        """Return the sequence to wait for, if any."""
        for length in range(len(blocks), 0, -1):
            number = self._computing.get(blocks[length - 1])
            if number is not None and (line or number not in self._lines):
                return number if 2 * length >= len(self._blocks[number]) else None
        return None


def _digests(tokens: Sequence[int]) -> list[bytes]:
    """Return one digest per whole block; each covers all tokens up to the block's end."""
    running = blake2b(digest_size=16)
    digests = []
    for end in range(_BLOCK, len(tokens) + 1, _BLOCK):
        running.update(array("q", tokens[end - _BLOCK : end]))
        digests.append(running.digest())
    return digests
