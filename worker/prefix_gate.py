"""Prompts that begin alike, one after the other: the engine finds a beginning in its cache only once it is computed.

Of several that are added together, it computes the whole beginning for each (measured: four cold prompts that share
1,500 tokens take four times as long as one; when three wait for the first, they take a fifth more).
"""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice

_BLOCK = 256
"""Tokens of a block, whose digest covers all before it too. Shorter beginnings are not worth waiting for."""

_REMEMBERED = 4096
"""Blocks (a million tokens) that count as computed; about what caches hold."""


class PrefixGate:
    """Which beginnings of prompts the engine has computed, and which it is computing."""

    def __init__(self, *, caching: bool = True) -> None:
        """An engine that is not ``caching`` prompts has nothing to wait for."""
        self._caching = caching
        self._computing: dict[bytes, int] = {}
        self._blocks: dict[int, list[bytes]] = {}
        self._computed: OrderedDict[bytes, None] = OrderedDict()
        self._waiting: dict[int, tuple[int, asyncio.Future[bool]]] = {}

    async def acquire(self, number: int, tokens: Sequence[int]) -> None:
        """Wait while another sequence computes what the prompt of sequence ``number`` begins with; not, though, for a
        much longer prompt of which that is the smaller part.

        :meth:`release` must follow.
        """
        blocks = _digests(tokens) if self._caching else []
        while first := self._first(blocks):
            ours = asyncio.get_running_loop().create_future()
            self._waiting[number] = (first, ours)
            try:
                if not await ours:
                    return
            finally:
                del self._waiting[number]
        self._blocks[number] = blocks
        for block in blocks:
            if block not in self._computed:
                self._computing[block] = number

    def release(self, number: int, *, computed: bool) -> None:
        """Sequence ``number`` has its first token, or never will (``computed`` false): let those that wait for it go
        on. One that waits itself waits no longer."""
        for block in self._blocks.pop(number, ()):
            if self._computing.get(block) == number:
                del self._computing[block]
            if computed:
                self._computed[block] = None
                self._computed.move_to_end(block)
        for block in list(islice(self._computed, max(0, len(self._computed) - _REMEMBERED))):
            del self._computed[block]
        for waiting, (first, future) in self._waiting.items():
            if (first == number or waiting == number) and not future.done():
                future.set_result(waiting != number)

    def forget(self) -> None:
        """Nothing is computed any more: there is a new engine."""
        self._computed.clear()

    def _first(self, blocks: Sequence[bytes]) -> int | None:
        """The sequence to wait for."""
        for length in range(len(blocks), 0, -1):
            number = self._computing.get(blocks[length - 1])
            if number is not None:
                return number if 2 * length >= len(self._blocks[number]) else None
        return None


def _digests(tokens: Sequence[int]) -> list[bytes]:
    """A digest for each whole block, which covers all before it too."""
    running = blake2b(digest_size=16)
    digests = []
    for end in range(_BLOCK, len(tokens) + 1, _BLOCK):
        running.update(array("q", tokens[end - _BLOCK : end]))
        digests.append(running.digest())
    return digests
