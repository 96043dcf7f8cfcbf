"""A batch survives: its feeder, workers and the store are killed, and each line has exactly one result."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from redis.exceptions import RedisError

from tests.support.batches import chat_line, ended, results, submit
from tests.support.fleet import Fleet, fleet

LINES = 360
SLOW = ("--engine", "simulated", "--model", "sim", "--max-batch", "8", "--sim-step", "0.01")
LINE_TOKENS = 20


class Rig:
    """Three replicas and two workers, whose store keeps a log."""

    def __init__(self, running: Fleet) -> None:
        self.fleet = running
        running.add_workers(2, *SLOW)
        self.replicas = {}
        for _ in range(3):
            process = running.api("--drain", "2")
            self.replicas[running.port] = process

    def client(self) -> openai.OpenAI:
        """A client of a replica that lives."""
        self.fleet.port = next(port for port, process in self.replicas.items() if process.popen.poll() is None)
        return self.fleet.client()

    def done(self, batch_id: str) -> int:
        counts = self.client().batches.retrieve(batch_id).request_counts
        return counts.completed if counts is not None else 0

    def feeder(self) -> int:
        """The port of the replica that feeds: the one with open streams."""

        def found() -> list[int]:
            ports = [port for port, process in self.replicas.items() if process.popen.poll() is None]
            return [port for port in ports if self._streams(port)]

        self.fleet.until(lambda: len(found()) == 1, "one replica to feed the batch")
        return found()[0]

    def _streams(self, port: int) -> int:
        self.fleet.port = port
        page = self.fleet.request("GET", "/metrics")[2].decode()
        return int(float(page.partition("\nvinoqueue_open_answers ")[2].partition("\n")[0]))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with fleet(tmp_path, "--appendonly", "yes", "--appendfsync", "everysec") as running:
        yield Rig(running)


def check(client: openai.OpenAI, rig: Rig, batch_id: str) -> None:
    """Each line has exactly one result, and it is the right one."""
    batch = ended(client, client.batches.retrieve(batch_id), rig.fleet.logs)
    assert batch.status == "completed", rig.fleet.logs()
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": LINES, "completed": LINES, "failed": 0}
    assert batch.error_file_id is None
    output = results(client, batch.output_file_id)
    assert Counter(line["custom_id"] for line in output) == Counter(f"line-{n}" for n in range(LINES))
    assert {line["response"]["body"]["usage"]["completion_tokens"] for line in output} == {LINE_TOKENS}
    assert batch.usage is not None
    assert batch.usage.output_tokens == LINES * LINE_TOKENS
    store = rig.fleet.redis()
    assert store.zcard("vinoqueue:batches") == 0
    files = rig.fleet.folder / "files"
    rig.fleet.until(
        lambda: (
            {path.name for path in files.rglob("*") if path.is_file()} == {batch.input_file_id, batch.output_file_id}
        ),
        "nothing but the batch's files to be left",
    )


def test_each_line_has_one_result_whatever_dies(rig: Rig) -> None:
    lines = [chat_line(f"line-{n}", f"[[tokens {LINE_TOKENS}]]", max_tokens=LINE_TOKENS) for n in range(LINES)]
    made = submit(rig.client(), lines)
    rig.fleet.until(lambda: rig.done(made.id) >= 40, "some lines to be done")
    first = rig.feeder()
    rig.replicas[first].signal(signal.SIGSTOP)  # it comes back when the other one has taken over
    rig.fleet.port = next(port for port in rig.replicas if port != first)
    survivor = rig.fleet.client()
    before = survivor.batches.retrieve(made.id).request_counts
    assert before is not None

    def advanced() -> bool:
        counts = survivor.batches.retrieve(made.id).request_counts
        return counts is not None and counts.completed > before.completed + 20

    rig.fleet.until(advanced, "another replica to feed")
    rig.replicas[first].signal(signal.SIGCONT)
    assert rig.replicas[rig.feeder()].stop() == 0  # it drains, and leaves the batch to the others
    rig.fleet.processes[0].kill()  # a worker
    done = before.completed + 60
    rig.fleet.until(lambda: rig.done(made.id) >= done, "lines to be done without the worker")
    rig.fleet.store.kill()
    rig.fleet.store.start()

    def served() -> bool:
        try:
            return bool(rig.fleet.redis().ping())
        except RedisError:
            return False

    rig.fleet.until(served, "the store to be back")
    second = rig.feeder()
    rig.replicas[second].kill()
    check(rig.client(), rig, made.id)


def test_preempted_lines_survive_their_worker(tmp_path: Path) -> None:
    """All of its lines are preempted when a worker is killed; another one continues them from their journals."""
    slow = ("--engine", "simulated", "--model", "sim", "--max-batch", "8", "--lease", "2", "--sim-step", "0.4")
    with fleet(tmp_path) as running, ThreadPoolExecutor(1) as executor:
        worker = running.worker(*slow)
        running.api()
        client = running.client()
        lines = [chat_line(f"line-{n}", f"[[tokens 6]] {n}", max_tokens=6) for n in range(10)]
        made = submit(client, lines)
        running.until(lambda: any(one.get("tokens", 0) for one in running.workers()), "lines to run")
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
        create = client.chat.completions.create
        other = executor.submit(lambda: create(model="sim", messages=messages, max_tokens=2))
        time.sleep(0.2)  # half of the step in which the request has the engine to itself
        worker.kill()
        running.start("worker", *slow[:-1], "0.01")
        answer = other.result()
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 2
        batch = ended(client, made, running.logs)
        killed = {
            line["custom_id"]: line["response"]["body"]["choices"] for line in results(client, batch.output_file_id)
        }
        again = ended(client, submit(client, lines), running.logs)
        undisturbed = results(client, again.output_file_id)
        assert killed == {line["custom_id"]: line["response"]["body"]["choices"] for line in undisturbed}
        assert len(killed) == 10
