"""Base class of the incremental JSON and Python literal scanners."""

from collections.abc import Callable

State = Callable[[str, int], int]
"""A scanner state: consumes text from an index on, and returns the index of the first character not consumed."""


class Scanner:
    """State machine that scans one value across chunks of text. Its states append JSON text to ``_output``."""

    def __init__(self, first: State) -> None:
        """``first`` is the initial state."""
        self.done = False
        self.failed = False
        self._stack: list[str] = []
        self._output: list[str] = []
        self._token = ""
        self._key = False
        self._state = first

    def scan(self, text: str, start: int) -> tuple[int, str]:
        """Scan ``text`` from ``start`` on; return the index of the first character not consumed, and the JSON output.

        Scanning stops when the value is complete (``done``) or the text is invalid (``failed``).
        """
        at = start
        while at < len(text) and not self.done and not self.failed:
            at = self._state(text, at)
        output = "".join(self._output)
        self._output.clear()
        return at, output
