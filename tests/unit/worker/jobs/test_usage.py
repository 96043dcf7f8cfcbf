"""What a job has used when it ends."""

import pytest

from shared.protocol.errors import Problem, ProblemKind
from shared.protocol.events import CANCELLED, Delta, Event, Failed, Finished, Started
from shared.protocol.request import ChatRequest, Image, Job, Message, Tokenize
from shared.protocol.usage import UsageCounts
from tests.support.job_rig import Attempt, attempt_of, claim_of
from tests.support.jobs import REPLICA
from worker.jobs.attempt_recorder import usage_of

REQUEST = ChatRequest(model="tiny", messages=(Message(role="user", images=(Image(digest="x"),)),))
FAILED = Failed(Problem(kind=ProblemKind.INTERNAL, message=""))


def ended(event: Event, *, choice: int = 0, first: bool = True, tokens: int = 0, added: bool = True) -> Attempt:
    """An attempt whose prompt has 10 tokens, 4 of them cached."""
    attempt = attempt_of(Job(id="a", reply_to=REPLICA, request=REQUEST, choice=choice, is_first=first))
    attempt.started_event = Started("w1", 10, "fp", cached_tokens=4)
    attempt.added_at = attempt.claimed_at if added else 0.0
    attempt.tokens = tokens
    attempt.terminal_event = event
    return attempt


def used(attempt: Attempt) -> tuple[int, ...]:
    """All counts but the time."""
    found = usage_of(attempt)
    return (
        found.requests, found.prompt_tokens, found.cached_tokens, found.completion_tokens, found.images, found.errors
    )  # fmt: skip


@pytest.mark.parametrize(
    ("attempt", "counts"),
    [
        (ended(Finished(7, "stop")), (1, 10, 4, 7, 1, 0)),
        (ended(Finished(7, "stop", 300)), (1, 300, 4, 7, 1, 0)),
        (ended(Finished(7, "stop"), choice=1, first=False), (0, 0, 0, 7, 0, 0)),
        (ended(CANCELLED, tokens=3), (1, 10, 4, 3, 1, 0)),
        (ended(CANCELLED, added=False), (1, 0, 0, 0, 0, 0)),
        (ended(FAILED, tokens=3), (1, 10, 4, 3, 1, 1)),
    ],
    ids=["finished", "with images", "further choice", "cancelled", "cancelled before its prompt", "failed"],
)
def test_by_the_end_of_the_job(attempt: Attempt, counts: tuple[int, ...]) -> None:
    assert used(attempt) == counts


def test_a_further_attempt_counts_what_the_job_has_used() -> None:
    attempt = ended(FAILED)
    history: list[Event] = [Started("w0", 10, "fp", cached_tokens=2), Delta(0, (1, 2), "x"), Delta(2, (3,), "y")]
    attempt.claim = claim_of(Job(id="a", reply_to=REPLICA, request=REQUEST), 2, history=history)
    assert used(attempt) == (1, 10, 2, 3, 1, 1)


def test_counting_tokens_uses_nothing() -> None:
    attempt = ended(Finished(0, "stop"))
    attempt.request = ChatRequest(model="tiny", work=Tokenize())
    assert usage_of(attempt) == UsageCounts()
