"""Tool calls that end a choice: one beyond the allowed number, and the repetition of an earlier one.

Small models that are forced to call repeat the same call until the context is full.
"""

import re
from collections.abc import Iterator, Sequence

from shared.parsers import CallArguments, CallClosed, CallOpened, Part

_GAPS = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+')
"""Strings, which are kept, and whitespace between tokens of JSON."""


class CallFilter:
    """Passes the parts of a choice, until a call completes it.

    A call is held back while it may still become a repetition: a complete call with the name and the arguments of an
    earlier one. Repetitions are in no part.
    """

    def __init__(self, max_calls: int | None) -> None:
        """``max_calls`` is the allowed number of calls; None without a limit."""
        self._max_calls = max_calls
        self._name = ""
        self._arguments: list[str] = []
        """Of the current call, in pieces."""
        self._earlier: dict[str, dict[str, str]] = {}
        """The arguments of complete calls, by name: compact JSON, and the same without any whitespace."""
        self._similar: list[str] = []
        """Arguments of earlier calls, without whitespace, that the current call's begin like."""
        self._read = 0
        """Number of characters of the current call's arguments, without whitespace."""
        self._held: list[Part] = []
        self.complete = False
        """Whether a call has completed the choice; all further parts are dropped."""

    def filter(self, parts: Sequence[Part]) -> Iterator[Part]:
        """Yield the parts that are certain, in order."""
        for part in parts:
            match part:
                case CallOpened(index, _, name):
                    yield from self.rest()
                    if self._max_calls is not None and index >= self._max_calls:
                        self.complete = True
                        return
                    self._open(name)
                case CallArguments(_, text):
                    self._add(text)
                case CallClosed():
                    if self._closes_repetition():
                        self.complete = True
                        return
                    self._similar = []
                case _:
                    # The current call was malformed.
                    self._similar = []
            if self._similar:
                self._held.append(part)
            else:
                yield from self.rest()
                yield part

    def rest(self) -> list[Part]:
        """Return and remove the parts that are held back."""
        held, self._held = self._held, []
        return held

    def _open(self, name: str) -> None:
        self._name, self._arguments, self._read = name, [], 0
        self._similar = list(self._earlier.get(name, {}).values())

    def _add(self, text: str) -> None:
        self._arguments.append(text)
        if self._similar:
            dense = _dense(text)
            self._similar = [earlier for earlier in self._similar if earlier.startswith(dense, self._read)]
            self._read += len(dense)

    def _closes_repetition(self) -> bool:
        """Return whether the current call, which is complete, is a repetition; otherwise, remember it."""
        arguments = "".join(self._arguments)
        compact = _GAPS.sub(r"\1", arguments)
        earlier = self._earlier.setdefault(self._name, {})
        if compact in earlier:
            return True
        earlier[compact] = _dense(arguments)
        return False


def _dense(text: str) -> str:
    return "".join(text.split())
