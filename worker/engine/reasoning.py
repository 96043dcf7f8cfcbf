"""The budget of reasoning: counts its tokens, and names the token that must come next once they are used up."""

from collections.abc import Callable

from worker.engine.protocol import ReasoningLimit


class ReasoningBudget:
    """Follows one output, token by token. Its state depends on the tokens only, so a resumed output goes on with it."""

    def __init__(self, limit: ReasoningLimit, piece: Callable[[int], bytes]) -> None:
        """``piece`` returns a token's bytes."""
        self._limit = limit
        self._piece = piece
        self._left = limit.tokens
        self._inside = limit.opened
        self._may_begin = not limit.opened
        self._forced = 0
        """How many tokens of the end marker have been forced."""
        self._unmatched = b""
        """The end of the text, which a marker may continue."""
        self.cut = False
        """Whether the end was forced, and no content has followed."""

    @property
    def next(self) -> int | None:
        """The token that must come next; None if any may."""
        return self._limit.end_tokens[self._forced] if self._inside and self._left <= 0 else None

    def push(self, token: int) -> None:
        piece = self._piece(token)
        self.cut = self.cut and not piece.strip()
        if self._inside:
            self._forced = self._forced + 1 if token == self.next else 0
            self._left -= 1
        elif not self._may_begin:
            return
        self._unmatched += piece
        if self._inside:
            self._read_reasoning()
        else:
            self._read_content()

    def _read_reasoning(self) -> None:
        for end in self._limit.ends:
            if end.encode() in self._unmatched:
                self.cut = self._forced == len(self._limit.end_tokens)
                self._inside, self._may_begin, self._forced = False, self._limit.again, 0
                self._unmatched = b""
                return
        longest = max(len(end.encode()) for end in self._limit.ends)
        self._unmatched = self._unmatched[1 - longest :] if longest > 1 else b""
        if self._forced == len(self._limit.end_tokens):
            self._forced = 0

    def _read_content(self) -> None:
        """Look for the beginning of reasoning: after white space, because content may mention the marker."""
        begin = self._limit.begin.encode()
        text = self._unmatched if self._limit.again else self._unmatched.lstrip()
        if begin in text if self._limit.again else text.startswith(begin):
            self._inside, self._unmatched = True, b""
        elif self._limit.again:
            self._unmatched = text[1 - len(begin) :]
        else:
            self._may_begin = begin.startswith(text)
