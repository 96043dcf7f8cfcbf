"""Vectors while workers and subscriptions end: each request is answered once, by the right vectors."""

import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import openai
import pytest

from shared.protocol.usage import UsageCounts
from shared.redis import keys
from tests.support.fleet import Fleet, fleet
from tests.support.paths import MODELS
from tests.support.redis_types import at_once

MODEL = "tiny"
WORKER = ("--model", f"{MODEL}={MODELS / 'embed-bert'}")
WORDS = "the a river stone music window of and in to is red blue old new Hello world".split()  # noqa: SIM905


def requests(count: int) -> list[list[str]]:
    """Lists of 1 to 80 texts of different lengths."""
    dice = random.Random(1)
    return [
        [" ".join(dice.choices(WORDS, k=dice.randint(1, 40))) for _ in range(dice.choice((1, 5, 33, 80)))]
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("faults")) as running:
        running.add_workers(2, *WORKER)
        running.api()
        yield running


def embed(client: openai.OpenAI, texts: list[str], reported: list[int]) -> list[list[float]]:
    """Return the vectors; add to ``reported`` the tokens of the usage that the client read."""
    response = client.embeddings.create(model=MODEL, input=texts)
    reported.append(response.usage.prompt_tokens)
    assert [item.index for item in response.data] == list(range(len(texts)))
    return [item.embedding for item in response.data]


def same(found: Iterable[list[list[float]]], expected: list[list[list[float]]]) -> bool:
    return all(
        abs(a - b) <= 1e-5
        for many, others in zip(found, expected, strict=True)
        for one, other in zip(many, others, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def jobs_of(served: Fleet) -> int:
    """How many jobs the workers have had."""
    return sum(worker["requests"] for worker in served.workers())


def test_lost_frames_are_computed_again(served: Fleet) -> None:
    asked, client, reported = requests(12), served.client(), list[int]()
    expected = [embed(client, texts, reported) for texts in asked]
    jobs = known = sum(-(-len(texts) // 32) for texts in asked)
    served.until(lambda: jobs_of(served) == known, "the workers to report their jobs")

    def has(jobs: int) -> bool:
        return jobs_of(served) >= jobs

    with ThreadPoolExecutor(4) as pool, served.redis() as store:
        for _ in range(100):
            answers = pool.map(partial(embed, client, reported=reported), asked)
            first = [next(answers) for _ in range(4)]
            store.client_kill_filter(_type="pubsub")  # while others run
            assert same([*first, *answers], expected)
            known += jobs
            served.until(partial(has, known), "the workers to report their jobs")
            if jobs_of(served) > known:
                break
        else:
            pytest.fail("no frame was lost")
    served.until_counted()
    with served.redis() as store:
        (day,) = store.scan_iter(keys.usage("*"))
        (counts,) = at_once(store.hvals(day))
    used = UsageCounts.decode(counts)
    assert (used.requests, used.prompt_tokens) == (len(reported), sum(reported)), "what is computed again counts once"


def test_a_killed_worker_loses_no_request(served: Fleet) -> None:
    asked, client, reported = requests(60), served.client(), list[int]()
    expected = [embed(client, texts, reported) for texts in asked]
    victim = served.worker(*WORKER)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(embed, client, texts, reported) for texts in asked * 2]
        answers[3].result()
        victim.kill()
        assert same((answer.result() for answer in answers), expected * 2)
