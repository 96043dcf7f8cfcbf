"""An outage of the store is two lines in the log, however many parts of a process retry meanwhile."""

import logging

import pytest
from redis.exceptions import ConnectionError, NoPermissionError

from shared.redis.outage import Outage


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_outage_and_its_end_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    store = Outage()
    for _ in range(5):
        store.failed("frames", ConnectionError("refused"))
        store.failed("registry", OSError("gone"))
    assert lines(caplog) == ["the store fails (frames): ConnectionError: refused"]
    store.succeeded("frames")
    store.succeeded("frames")
    assert len(lines(caplog)) == 1, "the registry still fails"
    store.succeeded("registry")
    store.succeeded("registry")
    assert lines(caplog)[1:] == [caplog.messages[-1]]
    assert caplog.messages[-1].startswith("the store works again after ")


def test_the_next_outage_is_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    store = Outage()
    for _ in range(2):
        store.failed("frames", ConnectionError("refused"))
        store.succeeded("frames")
    assert len(lines(caplog)) == 4


def test_an_error_without_an_outage_is_logged_once_too(caplog: pytest.LogCaptureFixture) -> None:
    store = Outage()
    store.failed("frames", ConnectionError("refused"))
    for _ in range(3):
        store.failed("leases", NoPermissionError("no permission"))
    assert lines(caplog)[1:] == ["the store fails (leases): NoPermissionError: no permission"]


def test_what_is_not_retried_is_no_news_in_an_outage() -> None:
    store = Outage()
    assert store.level == logging.WARNING
    store.failed("frames", ConnectionError("refused"))
    assert store.level == logging.DEBUG
    store.succeeded("frames")
    assert store.level == logging.WARNING
