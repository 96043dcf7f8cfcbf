"""What a job has used when it ends, for the usage of its key."""

import time
from contextlib import suppress

from shared.protocol.events import CANCELLED, Alternatives, Delta, Event, Failed, Finished, Rejected, Started
from shared.protocol.usage import UsageCounts
from shared.redis.records import UNREADABLE
from worker.jobs.attempt import Attempt


def usage_of(attempt: Attempt) -> UsageCounts:
    """Return what the job of an attempt that ends has used, with the tokens of earlier attempts.

    A request with several jobs counts with its first one, and a prompt with the first of its choices.
    """
    request, event = attempt.request, attempt.terminal_event
    if request is None or request.tokenization is not None:
        return UsageCounts()
    history = _history(attempt)
    # The tokens of the first attempt that started were reported to clients.
    started = next((one for one in history if isinstance(one, Started)), attempt.started_event)
    prompt_tokens = started.prompt_tokens if attempt.added_at or history else 0
    match event:
        case Finished(position):
            tokens = position
            prompt_tokens = event.prompt_tokens or prompt_tokens
        case Alternatives(items):
            tokens = sum(len(item.tokens) for item in items)
            prompt_tokens = event.prompt_tokens or prompt_tokens
        case _:
            published = (one.position + len(one.tokens) for one in history if isinstance(one, Delta))
            tokens = max(attempt.tokens, *published, 0)
    of_prompt = attempt.queued.choice == 0
    return UsageCounts(
        requests=int(attempt.queued.is_first),
        prompt_tokens=prompt_tokens if of_prompt else 0,
        cached_tokens=started.cached_tokens if of_prompt and prompt_tokens else 0,
        completion_tokens=tokens,
        images=len(request.images) if of_prompt and prompt_tokens else 0,
        engine_ms=round((time.monotonic() - attempt.added_at) * 1000) if attempt.added_at else 0,
        errors=int(isinstance(event, Failed | Rejected) and event is not CANCELLED),
    )


def _history(attempt: Attempt) -> list[Event]:
    with suppress(*UNREADABLE):
        return attempt.claim.history()
    return []
