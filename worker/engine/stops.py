"""Stop strings in text that arrives in parts."""

from collections.abc import Sequence

from shared.parsers import Parser, Span


class _StopString:
    """Searches for one stop string in text that arrives in parts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched_prefix = ""
        """The longest suffix of the text so far that is a prefix of the stop string. A match can't start before it."""

    def find(self, text: str, after: int) -> int | None:
        """Append the next part; return the index in it after the end of the stop string, or None.

        The stop string ends behind the index ``after``, and before it is ignored.
        Linear in the text: each possible start of the stop string is discarded at most once.
        """
        stop = self.text
        if not self.matched_prefix and stop[0] not in text:
            return None
        window = self.matched_prefix + text
        found = window.find(stop, max(0, after + len(self.matched_prefix) - len(stop) + 1))
        if found >= 0:
            return found + len(stop) - len(self.matched_prefix)
        start = window.find(stop[0], max(0, len(window) - len(stop) + 1))
        while start >= 0 and not stop.startswith(window[start:]):
            start = window.find(stop[0], start + 1)
        self.matched_prefix = window[start:] if start >= 0 else ""
        return None


class StopSearch:
    """Searches the content of a text for stop strings, and holds back what may be one of them.

    With a ``parser``, reasoning and tool calls are no content, nor is the whitespace around them. If several stop
    strings match, the one that ends first applies; of those that end at the same place, the longest. Positions count
    characters of the whole text.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False, parser: Parser | None = None) -> None:
        """Empty stop strings are ignored. ``include``: the text includes the stop string."""
        self._stops = [_StopString(text) for text in stops if text]
        self._include = include
        self._parser = parser
        self._held: list[str] = []
        """Text that is not final, in pieces."""
        self._begin = 0
        """Position of the text that is not final."""
        self._end = 0
        self._searched = 0
        """Position of the end of the last piece of content."""
        self._armed = 0
        """Position behind which stop strings may end."""
        self.stop = ""
        """The stop string that has matched, if one has."""

    @property
    def holds(self) -> bool:
        """Whether text is held back."""
        return self._begin < self._end

    def push(self, text: str, *, armed: bool = True) -> str:
        """Append text; return what has become final. Without ``armed``, no stop string ends in it."""
        self._append(text)
        if not armed:
            self._armed = self._end
        if self._parser is None:
            return self._search([(self._end, text)], self._end)
        self._parser.feed(text)
        return self._search(self._parser.spans, self._parser.settled)

    def finish(self, text: str, *, cut: bool) -> str:
        """Append the last text; return what has not been returned. ``cut`` is as for :meth:`Parser.finish`."""
        shown = self.push(text)
        if self._parser is not None and not self.stop:
            self._parser.finish(cut=cut)
            shown += self._search(self._parser.spans, self._end)
        return shown if self.stop else shown + self._release(self._end)

    def _append(self, text: str) -> None:
        self._held.append(text)
        self._end += len(text)

    def _search(self, spans: Sequence[Span], settled: int) -> str:
        """Search new content; return the text that is final if the text before ``settled`` is known to be content."""
        for end, text in spans:
            begin = end - len(text)
            if begin != self._searched:
                self._reset()
            self._searched = end
            ends = [
                (found, -len(stop.text), stop.text)
                for stop in self._stops
                if (found := stop.find(text, self._armed - begin)) is not None
            ]
            if ends:
                found, negative_length, self.stop = min(ends)
                return self._release(begin + found + (0 if self._include else negative_length))
        if settled > self._searched:
            self._reset()
            return self._release(settled)
        return self._release(self._searched - max((len(stop.matched_prefix) for stop in self._stops), default=0))

    def _reset(self) -> None:
        """Discard the beginnings of stop strings, which something else than content has interrupted."""
        for stop in self._stops:
            stop.matched_prefix = ""

    def _release(self, end: int) -> str:
        """Return the text up to the position ``end``, which is final."""
        if end <= self._begin:
            return ""
        text = "".join(self._held)
        size = end - self._begin
        self._held = [text[size:]]
        self._begin = end
        return text[:size]
