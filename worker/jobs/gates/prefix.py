"""The prefix gate: holds back prompts with a shared prefix until the first of them is computed.

The engine's prefix cache holds a prefix only after its prefill. Of several prompts added together, each computes the
whole prefix: four cold prompts that share 1,500 tokens take four times as long as one. With the gate, they take a fifth
longer than one.

Other requests do not wait for batch requests, which they preempt (:mod:`worker.jobs.gates.batches`). A prompt whose log
probabilities are requested is computed without the prefix cache.
"""

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice

from worker.engine.handle import EngineProcess
from worker.jobs.attempt import Attempt, Hold

_BLOCK = 256
"""Tokens per block. A block's digest covers all tokens before it too. Shorter prefixes are not waited for."""

_MAX_COMPUTED = 4096
"""Maximum number of blocks assumed to be cached (a million tokens, about what caches hold)."""


class PrefixGate:
    """Tracks which prefixes the engine has computed, and which it is computing."""

    def __init__(self, *, caching: bool = True) -> None:
        """``caching``: whether the engine has a prefix cache. Without one, the gate is always open."""
        self._caching = caching
        self._computing: dict[bytes, _Prefill] = {}
        self._computed: OrderedDict[bytes, None] = OrderedDict()
        self._engine: EngineProcess | None = None
        """The engine process whose cache holds the computed blocks."""

    async def enter(self, attempt: Attempt) -> Hold:
        """Wait while another attempt computes a prefix of the prompt of ``attempt``.

        It does not wait for a prompt of which the shared prefix is less than half.
        """
        sequence = attempt.sequence
        caches = self._caching and sequence.sampling.prompt_scoring is None
        blocks = _digests(sequence.prompt) if caches else []
        while first := self._blocking(blocks, is_batch=attempt.is_batch):
            await first.ended.wait()
        if attempt.engine is not self._engine:
            self._computed.clear()
            self._engine = attempt.engine
        hold = _Prefill(self, blocks, is_batch=attempt.is_batch)
        for block in blocks:
            if block not in self._computed:
                self._computing[block] = hold
        return hold

    def _blocking(self, blocks: Sequence[bytes], *, is_batch: bool) -> "_Prefill | None":
        """Return the prefill to wait for, if any."""
        for length in range(len(blocks), 0, -1):
            other = self._computing.get(blocks[length - 1])
            if other is not None and (is_batch or not other.is_batch):
                return other if 2 * length >= len(other.blocks) else None
        return None

    def end(self, prefill: "_Prefill", *, computed: bool) -> None:
        """Let the attempts that wait for ``prefill`` go on. ``computed``: whether its prompt is in the cache."""
        for block in prefill.blocks:
            if self._computing.get(block) is prefill:
                del self._computing[block]
            if computed:
                self._computed[block] = None
                self._computed.move_to_end(block)
        for block in list(islice(self._computed, max(0, len(self._computed) - _MAX_COMPUTED))):
            del self._computed[block]
        prefill.ended.set()


class _Prefill(Hold):
    """The computation of a prompt."""

    def __init__(self, gate: PrefixGate, blocks: list[bytes], *, is_batch: bool) -> None:
        self._gate = gate
        self.blocks = blocks
        self.is_batch = is_batch
        self.ended = asyncio.Event()

    def progress(self, tokens: int) -> bool:
        self._gate.end(self, computed=True)
        return False

    def leave(self) -> None:
        if not self.ended.is_set():
            self._gate.end(self, computed=False)


def _digests(tokens: Sequence[int]) -> list[bytes]:
    """Return one digest per whole block; each covers all tokens up to the block's end."""
    running = blake2b(digest_size=16)
    digests = []
    for end in range(_BLOCK, len(tokens) + 1, _BLOCK):
        running.update(array("q", tokens[end - _BLOCK : end]))
        digests.append(running.digest())
    return digests
