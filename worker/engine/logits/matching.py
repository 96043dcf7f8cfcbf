"""Finds the rows of a step that belong to a sequence."""

from collections import defaultdict, deque
from typing import Protocol

from worker.engine.logits.operation import Ids

Key = tuple[int, int]
"""The token that a row was computed from, as in the pipeline's input, and that token's position."""


class RowLost(Exception):
    """No row, or another sequence's row, was found for a token. Its log probabilities are unknown."""


class KnownTokens(Protocol):
    """The known tokens of a sequence in the pipeline."""

    def token_at(self, position: int) -> int:
        """Return the token at ``position`` of the pipeline's input or output."""

    def last(self) -> Key:
        """Return its last token and that token's position."""


class StepRows:
    """The rows of one step. Each is taken once, by the sequences in the order in which they were added."""

    def __init__(self, tokens: Ids, positions: Ids) -> None:
        self._keys: list[Key] = list(zip(tokens.tolist(), positions.tolist(), strict=True))
        self._rows: defaultdict[Key, deque[int]] = defaultdict(deque)
        for row, key in enumerate(self._keys):
            self._rows[key].append(row)
        self._taken: set[int] = set()

    def take(self, key: Key) -> int | None:
        """Take and return the first row with ``key``."""
        row = self._first(key)
        if row is not None:
            self._taken.add(row)
        return row

    def take_run(self, sequence: KnownTokens, expected: int) -> range:
        """Take and return the consecutive rows of a sequence that has one for each of its tokens.

        ``expected`` is the position at which the prefill should continue. After a preemption, it may continue at an
        earlier one. A single row at another position is not enough, because it may belong to another sequence.
        """
        run = self._run_at(sequence, expected)
        position = expected
        while not run and position > 0:
            position -= 1
            run = self._run_at(sequence, position)
            if len(run) == 1 and position > 0:
                run = range(0)
        self._taken.update(run)
        return run

    def position(self, row: int) -> int:
        """Return the position of a row's token."""
        return self._keys[row][1]

    def _first(self, key: Key) -> int | None:
        rows = self._rows.get(key)
        while rows and rows[0] in self._taken:
            rows.popleft()
        return rows[0] if rows else None

    def _run_at(self, sequence: KnownTokens, position: int) -> range:
        """Return the longest run of the sequence's rows around that of ``position``."""
        row = self._first((sequence.token_at(position), position))
        if row is None:
            return range(0)
        start = end = row
        while self._belongs(sequence, start - 1, position - (row - start) - 1):
            start -= 1
        while self._belongs(sequence, end + 1, position + (end - row) + 1):
            end += 1
        return range(start, end + 1)

    def _belongs(self, sequence: KnownTokens, row: int, position: int) -> bool:
        if not (0 <= row < len(self._keys) and 0 <= position <= sequence.last()[1]) or row in self._taken:
            return False
        return self._keys[row] == (sequence.token_at(position), position)
