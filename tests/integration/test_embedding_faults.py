"""Vectors while workers and subscriptions end: each request is answered once, by the right vectors."""

import asyncio
import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import openai
import pytest

from faults.faults import ENGINE
from faults.processes import child
from faults.proxy import Proxy
from shared.protocol.usage import UsageCounts
from shared.redis import keys
from tests.support.fleet import PATIENT, Fleet, fleet, free_port
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
    return sum(worker.get("requests", 0) for worker in served.workers())


def counted(served: Fleet) -> tuple[int, int]:
    """The requests and the tokens that count."""
    served.until_counted()
    with served.redis() as store:
        (day,) = store.scan_iter(keys.usage("*"))
        (counts,) = at_once(store.hvals(day))
    used = UsageCounts.decode(counts)
    return used.requests, used.prompt_tokens


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
    assert counted(served) == (len(reported), sum(reported)), "what is computed again counts once"


def test_a_killed_worker_loses_no_request(served: Fleet) -> None:
    asked, client, reported = requests(24), served.client(), list[int]()
    expected = [embed(client, texts, reported) for texts in asked]
    victim = served.worker(*WORKER)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(embed, client, texts, reported) for texts in asked * 2]
        answers[3].result()
        victim.kill()
        assert same((answer.result() for answer in answers), expected * 2)


async def test_a_store_killed_between_publication_and_receipt_loses_no_request(tmp_path: Path) -> None:
    with fleet(tmp_path, "--appendonly", "yes", "--appendfsync", "always", lease=PATIENT) as served:

        async def until(condition: Callable[[], object], what: str) -> None:
            await asyncio.to_thread(served.until, condition, what)

        proxy = Proxy(served.store.port)
        await proxy.start()
        await asyncio.to_thread(served.worker, *WORKER, "--step-timeout", "600")
        served.port, url = free_port(), f"redis://127.0.0.1:{proxy.port}/0"
        served.start("api", "--port", str(served.port), VINOQUEUE_REDIS_URL=url)
        await until(lambda: served.status("/ready") == 200, "the API to be ready")
        asked, client, reported = ["the river", "old stone"], served.client(), list[int]()

        async def send() -> list[list[float]]:
            return await asyncio.to_thread(embed, client, asked, reported)

        expected = await send()
        await until(lambda: jobs_of(served) == 1, "the worker to report its job")
        engine = child(served.workers()[0]["pid"], ENGINE)
        assert engine is not None
        os.kill(engine, signal.SIGSTOP)
        answer = asyncio.create_task(send())
        with served.redis() as store:
            await until(lambda: store.zcard(keys.inflight(MODEL)), "the job to be claimed")
        proxy.silence()
        os.kill(engine, signal.SIGCONT)
        await until(lambda: jobs_of(served) >= 2, "the worker to publish the vectors")
        assert not answer.done()
        await asyncio.to_thread(served.store.kill)
        proxy.restore()
        await asyncio.to_thread(served.store.start)
        assert same([await answer], [expected])
        await until(lambda: jobs_of(served) >= 3, "the worker to report the job that was submitted again")
        assert await asyncio.to_thread(counted, served) == (2, sum(reported))
        await proxy.stop()
