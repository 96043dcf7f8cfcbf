"""Migration: the tokens of earlier attempts, read from the journal."""

from collections.abc import Iterable

from shared.protocol.events import Delta, Event


def generated_tokens(history: Iterable[Event]) -> tuple[int, ...]:
    """Return the token ids that earlier attempts published, in order.

    A repeated delta counts once: a publication is sent again when its reply was lost.
    Raises :class:`ValueError` for a gap.
    """
    tokens: list[int] = []
    for event in history:
        if isinstance(event, Delta):
            if event.position > len(tokens):
                raise ValueError(f"journal lacks the tokens {len(tokens)} to {event.position - 1}")
            tokens += event.tokens[len(tokens) - event.position :]
    return tuple(tokens)
