"""Every kind of work travels in a job, and a request of an older replica, which names none, is a generation."""

from typing import get_args

import msgspec
import pytest

from shared.protocol.request import ChatRequest, Generate, Job, QueuedJob, Work, decode_job, encode_job, encode_request


@pytest.mark.parametrize("kind", get_args(Work))
def test_a_job_carries_its_kind_of_work(kind: type[Work]) -> None:
    request = ChatRequest(model="m", work=kind())
    queued = QueuedJob.of(Job(id="j", reply_to="r", request=request), encode_request(request))
    assert decode_job(encode_job(queued)).inline_request() == request


def test_a_request_that_names_no_kind_is_a_generation() -> None:
    encoded = encode_request(ChatRequest(model="m"))
    assert "work" not in msgspec.msgpack.decode(encoded)
    assert msgspec.msgpack.decode(encoded, type=ChatRequest).work == Generate()
