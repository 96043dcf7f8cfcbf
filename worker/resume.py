"""Going on where an earlier attempt stopped: what its journal says was already generated."""

from collections.abc import Iterable

from shared.events import Delta, Event


def generated_tokens(history: Iterable[Event]) -> tuple[int, ...]:
    """Return the token ids that earlier attempts published, in order.

    A repeated delta (a publication that was sent twice when its answer got lost) counts once.
    Raises :class:`ValueError` when a piece is missing.
    """
    tokens: list[int] = []
    for event in history:
        if isinstance(event, Delta):
            if event.position > len(tokens):
                raise ValueError(f"journal lacks the tokens {len(tokens)} to {event.position - 1}")
            tokens += event.tokens[len(tokens) - event.position :]
    return tuple(tokens)
