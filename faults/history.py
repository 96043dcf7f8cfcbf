"""What clients saw: one record for each request, with the time of every event in it."""

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

Outcome = Literal["open", "completed", "refused", "failed", "cut", "aborted"]
"""How a request ended for its client: whole; a status other than 200; an error after the status; a connection that
ended before the answer did; or left by the client itself."""


class Exchange(msgspec.Struct, kw_only=True):
    """One HTTP request. Times are monotonic seconds."""

    client: int
    number: int
    prompt: str
    tokens: int
    streamed: bool
    sent: float
    model: str = ""
    """The model's name for clients."""
    sampled: bool = False
    """Whether its text is random."""
    stored_as: str = ""
    """The name under which its answer is to be stored; empty where it is not."""
    status: int = 0
    headers_at: float = 0.0
    ended: float = 0.0
    outcome: Outcome = "open"
    pieces: list[str] = []
    arrivals: list[float] = []
    """When each piece of text arrived, parallel to ``pieces``."""
    endings: int = 0
    """Terminal events seen: finish reasons and errors."""
    after_end: int = 0
    """Pieces of text that came after a terminal event."""
    error: str = ""
    retry_after: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Its usage, as the service has reported it."""

    @property
    def text(self) -> str:
        """The text that the client has."""
        return "".join(self.pieces)

    @property
    def accepted(self) -> bool:
        """Whether the service took the request: it said 200."""
        return self.status == 200

    def longest_gap(self, since: float, until: float) -> float:
        """The longest silence (seconds) of this stream that touches the time between ``since`` and ``until``."""
        steps = pairwise([self.sent, *self.arrivals, self.ended])
        return max((after - before for before, after in steps if after > since and before < until), default=0.0)


class History:
    """The exchanges of one run, in the order in which they began."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.faults: list[tuple[float, str]] = []
        """What was done to the service, and when (monotonic seconds)."""

    def begin(self, exchange: Exchange) -> Exchange:
        """Add an exchange."""
        self.exchanges.append(exchange)
        return exchange

    def count(self, outcome: Outcome) -> int:
        """How many exchanges ended so."""
        return sum(one.outcome == outcome for one in self.exchanges)

    def write(self, path: Path) -> None:
        """Write the history as JSON lines."""
        lines: Iterable[object] = [
            *({"fault": what, "at": at} for at, what in self.faults),
            *(msgspec.to_builtins(one) for one in self.exchanges),
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
