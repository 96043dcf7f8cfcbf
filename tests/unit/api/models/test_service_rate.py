"""The rate at which a model's queue empties, from advertisements."""

import pytest

from api.models.service_rate import ServiceRate
from shared.protocol.registry import WorkerInfo


def worker(name: str = "w", *, used: int = 16, tokens: int = 0, requests: int = 0) -> WorkerInfo:
    return WorkerInfo(
        id=name, host="h", pid=1, model="tiny", status="serving", engine="simulated", device="CPU", fingerprint="f",
        started=0.0, slots=16, used=used, tokens=tokens, requests=requests,
    )  # fmt: skip


def observed(seconds: int, *, workers: int = 1, used: int = 16) -> ServiceRate:
    """A rate after watching workers that make 800 tokens a second, in answers of 100."""
    rate = ServiceRate()
    for second in range(seconds):
        looks = [worker(f"w{number}", used=used, tokens=800 * second, requests=8 * second) for number in range(workers)]
        rate.observe(looks, float(second))
    return rate


def test_nothing_is_known_at_first() -> None:
    assert ServiceRate().requests_per_second is None
    assert observed(1).requests_per_second is None


def test_the_rate_is_that_of_the_tokens_over_the_length_of_answers() -> None:
    assert observed(20).requests_per_second == pytest.approx(8, rel=0.01)
    assert observed(20, workers=3).requests_per_second == pytest.approx(24, rel=0.01)


def test_idle_workers_tell_nothing_of_their_rate() -> None:
    assert observed(20, used=3).requests_per_second is None


def test_a_worker_that_has_gone_counts_no_more() -> None:
    rate = observed(20, workers=2)
    rate.observe([worker("w0", tokens=800 * 20, requests=8 * 20)], 20.0)
    assert rate.requests_per_second == pytest.approx(8, rel=0.01)
    rate.observe([], 21.0)
    assert rate.requests_per_second is None


def test_a_new_engine_that_counts_from_zero_does_no_harm() -> None:
    rate = observed(20)
    rate.observe([worker("w0", tokens=0, requests=8 * 20)], 20.0)
    rate.observe([worker("w0", tokens=800, requests=8 * 21)], 21.0)
    assert rate.requests_per_second == pytest.approx(8, rel=0.1)


def test_a_pause_of_a_second_hardly_counts() -> None:
    rate = observed(20)
    rate.observe([worker("w0", tokens=800 * 19, requests=8 * 19)], 20.0)
    assert rate.requests_per_second == pytest.approx(8, rel=0.1)
