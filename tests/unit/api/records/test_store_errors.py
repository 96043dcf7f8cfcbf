"""What a refusal says about the store."""

import pytest
from redis.exceptions import ConnectionError, NoPermissionError, OutOfMemoryError, TimeoutError

from api.records.errors import store_errors
from shared.protocol.errors import ProblemKind, RequestRefused


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "is out of memory"),
        (NoPermissionError("this user has no permissions"), "refused a command"),
        (ConnectionError("refused"), "can't be reached"),
        (TimeoutError("slow"), "can't be reached"),
        (OSError("gone"), "can't be reached"),
    ],
)
async def test_a_refusal_says_what_is_wrong_with_the_store(error: Exception, said: str) -> None:
    with pytest.raises(RequestRefused, match=said) as refusal:
        async with store_errors():
            raise error
    assert (refusal.value.problem.kind, refusal.value.problem.retry_after) == (ProblemKind.STORE_UNAVAILABLE, 1.0)
