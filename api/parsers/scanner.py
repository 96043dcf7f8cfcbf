"""What the readers of JSON and of Python literals have in common."""

from collections.abc import Callable

State = Callable[[str, int], int]
"""Reads on in a text from an index; returns the index of the first character that it did not read."""


class Scanner:
    """Follows one value through pieces of text. What is to be told of it gathers in ``_output``."""

    def __init__(self, first: State) -> None:
        """``first`` is the state before the value."""
        self.done = False
        self.failed = False
        self._stack: list[str] = []
        self._output: list[str] = []
        self._token = ""
        self._key = False
        self._state = first

    def scan(self, text: str, start: int) -> tuple[int, str]:
        """Read ``text`` from ``start`` on; return the index of the first character not read, and the JSON made of it.

        When ``done`` (the value is complete) or ``failed`` (the text has stopped being one) is set, reading stopped
        there.
        """
        at = start
        while at < len(text) and not self.done and not self.failed:
            at = self._state(text, at)
        output = "".join(self._output)
        self._output.clear()
        return at, output
