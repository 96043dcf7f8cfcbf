"""Log probabilities of a prompt, from the rows of logits of its prefill.

The pipeline computes a row for every token of a prompt only if its output repeats the prompt (``echo``). That part of
the output is ignored: in a batch with other sequences, its log probabilities are those of other rows. There are no rows
for tokens in the prefix cache, so the first token is salted, and the prompt differs from all that are cached. The other
tokens can't be salted: with ``echo``, the pipeline looks up their logits.
"""

from collections.abc import Callable

from shared.protocol.events import PromptLogprobs, RankedToken
from worker.engine.logits.matching import RowLost
from worker.engine.logits.operation import Logits
from worker.engine.logits.topk import Row, log_normalizer, top

Ranked = tuple[int, float, int]
"""A token's id, log probability and rank."""


class PromptReader:
    """Collects the log probabilities of one prompt, while the pipeline computes it in one or several steps."""

    def __init__(self, prompt: tuple[int, ...], most_likely: int) -> None:
        """``most_likely`` is the number of most likely tokens to collect at each position."""
        self._prompt = prompt
        self._most_likely = most_likely
        self._own: list[Ranked] = []
        self._top: list[tuple[Ranked, ...]] = []

    @property
    def complete(self) -> bool:
        """Whether the rows of all tokens but the last were kept. The last token's row is that of the first new one."""
        return self.expected == len(self._prompt) - 1

    @property
    def expected(self) -> int:
        """The position of the first token whose row was not kept yet."""
        return len(self._own)

    def keep(self, position: int, rows: Logits) -> None:
        """Read consecutive rows, the first of which was computed from the token at ``position``.

        Rows that were kept already are ignored, and so are those of generated tokens. Rows after a gap are, too, so the
        prompt never becomes complete.
        """
        for row in rows[max(0, self.expected - position) :] if position <= self.expected else ():
            if self.complete:
                break
            self._read(row, self._prompt[self.expected + 1])

    def _read(self, row: Row, token: int) -> None:
        normalizer = log_normalizer(row)
        self._own.append((token, float(row[token]) - normalizer, 1 + int((row > row[token]).sum())))
        ids = top(row, self._most_likely) if self._most_likely else ()
        self._top.append(tuple((int(id_), float(row[id_]) - normalizer, rank) for rank, id_ in enumerate(ids, 1)))

    def result(self, piece: Callable[[int], bytes]) -> PromptLogprobs:
        """Return the log probabilities of the prompt; ``piece`` returns a token's bytes.

        Raises :class:`RowLost` if some are missing.
        """
        if not self.complete:
            raise RowLost(f"the prompt has {len(self._prompt)} tokens, and rows were found for {len(self._own)}")

        def named(ranked: Ranked) -> RankedToken:
            token, logprob, rank = ranked
            return RankedToken(token, piece(token), logprob, rank)

        return PromptLogprobs(
            first=(self._prompt[0], piece(self._prompt[0])),
            rest=tuple(map(named, self._own)),
            top=tuple(tuple(map(named, tokens)) for tokens in self._top),
        )
