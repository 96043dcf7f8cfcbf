"""What keys are charged: by usage and budgets, whoever is killed; and by how much a budget is exceeded."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from shared.protocol.events import Delta, Started, decode_journal
from shared.protocol.usage import UsageCounts
from shared.redis import keys
from tests.support.batches import chat_line, ended, results, submit
from tests.support.eventually import PATIENCE
from tests.support.fleet import PATIENT, Fleet, fleet
from tests.support.redis_types import at_once

SLOW = ("--engine", "simulated", "--model", "sim", "--sim-step", "0.02")
KINDS = {
    "unlimited": (),
    "budget only": ("--tokens-per-day", "1000000"),
    "limited": ("--tokens-per-minute", "1000000", "--requests-per-minute", "9000", "--concurrency", "50"),
    "member": ("--team", "physics", "--tokens-per-month", "1000000"),
    "batch": ("--tokens-per-day", "1000000"),
}
"""The options of a key of each kind."""


class Keys:
    """A fleet, and a key of each kind with the usage that its clients read."""

    def __init__(self, running: Fleet, kinds: dict[str, tuple[str, ...]] = KINDS) -> None:
        self.fleet = running
        team = running.folder / "team"
        self.secrets = {}
        for name, options in kinds.items():
            if "--team" in options and not team.exists():
                team.write_text(team_of(running))
            own = [team.read_text() if option == "physics" else option for option in options]
            self.secrets[name] = running.key("create", "--name", name, *own)
        self.ids = self._ids()
        self.team = team.read_text() if team.exists() else ""
        self.reported: Counter[str] = Counter()
        """Tokens of each key."""

    def _ids(self) -> dict[str, str]:
        return {key["name"]: key["id"] for key in json.loads(self.fleet.key("list", "--json"))}

    def add(self, name: str, *options: str) -> str:
        """Create a key that is known to the replica; return its secret."""
        self.secrets[name] = self.fleet.key("create", "--name", name, *options)
        self.ids = self._ids()
        headers = {"api-key": self.secrets[name]}
        self.fleet.until(lambda: self.fleet.request("GET", "/v1/models", None, headers)[0] == 200, "the key")
        return self.secrets[name]

    def client(self, name: str) -> openai.OpenAI:
        return self.fleet.client().with_options(api_key=self.secrets[name])

    def ask(self, name: str, tokens: int, **fields: Any) -> None:
        """Have a key's client ask for so many tokens, and add the usage that it reads."""
        answer = self.client(name).chat.completions.create(
            model="sim", messages=[{"role": "user", "content": f"[[tokens {tokens}]]"}], max_tokens=tokens, **fields
        )
        assert answer.usage.completion_tokens == tokens * fields.get("n", 1)
        self.reported[name] += answer.usage.total_tokens

    def used(self) -> dict[str, int]:
        """The tokens of each key by the usage of the days."""
        self.fleet.until_counted()
        names, found = {one: name for name, one in self.ids.items()}, Counter[str]()
        with self.fleet.redis() as store:
            for day in store.scan_iter(keys.usage("*")):
                for field, stored in at_once(store.hgetall(day)).items():
                    counts = UsageCounts.decode(stored)
                    key = field.decode().split(" ")[0].partition("@")[0]
                    found[names[key]] += counts.prompt_tokens + counts.completion_tokens
        return dict(found)

    def spent(self, owner: str) -> int:
        with self.fleet.redis() as store:
            return sum(map(int, at_once(store.hvals(keys.spent(owner)))))

    def held(self) -> list[object]:
        """What is still reserved, or queued."""
        with self.fleet.redis() as store:
            admitted = list(store.scan_iter(keys.admitted("*")))
            reserved = [at_once(store.hget(key, "reserved")) for key in store.scan_iter(keys.buckets("*"))]
            estimates = [field for key in store.scan_iter(keys.sizes("*")) for field in at_once(store.hkeys(key))]
        return [*admitted, *(tokens for tokens in reserved if tokens not in (None, b"0")), *estimates]

    def check(self) -> None:
        """What is counted is the usage that clients read, in all places, and nothing is held."""
        self.fleet.until(lambda: not self.held(), "nothing to be held")
        assert self.used() == dict(self.reported)
        for name, tokens in self.reported.items():
            assert self.spent(self.ids[name]) == tokens, name
        if self.team:
            assert self.spent(f"team:{self.team}") == self.reported["member"]


def team_of(running: Fleet) -> str:
    """Create a team with limits and budgets; return its id."""
    status, output = running.command("team", "create", "--name", "physics", "--tokens-per-day", "1000000")
    assert status == 0, output
    return output.strip().splitlines()[-1]


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    with fleet(tmp_path_factory.mktemp("accounting")) as running:
        known = Keys(running)
        running.api("--drain", "1")
        yield known


def test_killed_workers_change_no_sum(served: Keys) -> None:
    running, lines = served.fleet, range(50, 80)
    victims = [running.worker(*SLOW) for _ in range(3)][:2]
    batch = submit(served.client("batch"), [chat_line(str(n), f"[[tokens {n}]]", max_tokens=n) for n in lines])
    with ThreadPoolExecutor(40) as pool:
        asked = [
            pool.submit(served.ask, name, tokens, n=n)
            for name in KINDS
            for tokens, n in ((1, 1), (60, 1), (90, 3), (150, 1))
        ]
        store = running.redis()
        running.until(
            lambda: at_once(store.zcard(keys.inflight("sim"))) > 9 or all(one.done() for one in asked), "jobs to run"
        )
        for victim in victims:
            victim.kill()
        for one in asked:
            one.result()
    batch = ended(served.client("batch"), batch)
    found = results(served.client("batch"), batch.output_file_id)
    served.reported["batch"] += sum(line["response"]["body"]["usage"]["total_tokens"] for line in found)
    assert len(found) == len(lines)
    served.check()


def test_a_client_that_leaves_before_a_second_worker_pays_what_was_generated(served: Keys) -> None:
    running, store = served.fleet, served.fleet.redis()
    for name in ("budget only", "member"):
        victim = running.worker(*SLOW)
        chunks = served.client(name).chat.completions.create(
            model="sim", messages=[{"role": "user", "content": "[[tokens 5000]]"}], max_tokens=5000, stream=True
        )
        next(chunks)
        victim.kill()
        running.until(lambda: at_once(store.zcard(keys.queue("sim"))) == 1, "the job to wait again")
        (job,) = at_once(store.zrange(keys.queue("sim"), 0, -1))
        started, *_, last = decode_journal(at_once(store.lrange(keys.journal(job.decode()), 0, -1)))
        assert isinstance(started, Started)
        assert isinstance(last, Delta)
        served.reported[name] += started.prompt_tokens + last.position + len(last.tokens)
        chunks.close()
        running.until(lambda: at_once(store.zcard(keys.queue("sim"))) == 0, "the job to be cancelled")
    running.worker(*SLOW)  # It counts what has ended.
    served.check()


def test_a_killed_replica_changes_no_sum(served: Keys) -> None:
    """What goes on without it is counted to its end, and what does not, as far as it was generated."""
    running, store = served.fleet, served.fleet.redis()
    running.worker(*SLOW)
    (doomed,) = (process for process in running.processes if "api" in process.log.name)
    served.add("small", "--tokens-per-day", "5400")
    client = served.client("small")
    plain = client.chat.completions.create(
        model="sim", messages=[{"role": "user", "content": "[[tokens 5000]]"}], max_tokens=5000, stream=True
    )
    next(plain)
    (job,) = at_once(store.zrange(keys.inflight("sim"), 0, -1))
    response = client.responses.create(model="sim", input="[[tokens 300]]", max_output_tokens=300, background=True)
    doomed.kill()
    running.api()
    running.until(lambda: at_once(store.zcard(keys.inflight("sim"))) == 0, "the jobs to end")
    started, *_, last, _end = decode_journal(at_once(store.lrange(keys.journal(job.decode()), 0, -1)))
    assert isinstance(started, Started)
    assert isinstance(last, Delta)
    usage = served.client("small").responses.retrieve(response.id).usage
    assert usage is not None
    served.reported["small"] += started.prompt_tokens + last.position + len(last.tokens) + usage.total_tokens
    assert served.used() == dict(served.reported)
    # What the lost replica has reserved is free when it is needed.
    running.until(lambda: _asks_one(served), "another request to fit")
    served.check()


def _asks_one(served: Keys) -> bool:
    try:
        served.ask("small", 1)
    except openai.RateLimitError:
        return False
    return True


BUDGET = 1000
COUNT = 100
"""Clients that send at once, each until it is refused."""

Client = Callable[[httpx.AsyncClient], Coroutine[Any, Any, int]]


async def served_to(client: httpx.AsyncClient, **fields: Any) -> int:
    """Send one request; return the tokens that were served, 0 if it was refused."""
    answer = await client.post("/v1/chat/completions", json={"model": "sim", **fields})
    assert answer.status_code in (200, 429), answer.text
    return int(answer.json()["usage"]["total_tokens"]) if answer.status_code == 200 else 0


async def with_a_maximum(client: httpx.AsyncClient) -> int:
    return await served_to(client, messages=[{"role": "user", "content": "[[tokens 250]]"}], max_tokens=250)


async def without_a_maximum(client: httpx.AsyncClient) -> int:
    return await served_to(client, messages=[{"role": "user", "content": "[[tokens 600]]"}])


async def choices(client: httpx.AsyncClient) -> int:
    return await served_to(client, messages=[{"role": "user", "content": "[[tokens 50]]"}], max_tokens=50, n=5)


async def leaving(client: httpx.AsyncClient) -> int:
    """Leave with the first text."""
    chat = [{"role": "user", "content": "[[tokens 250]]"}]
    body = {"model": "sim", "messages": chat, "max_tokens": 250, "stream": True}
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for _ in answer.aiter_lines():
            return int(answer.status_code == 200)
    return 0


OVERSHOOTS: dict[str, tuple[Client, int]] = {
    # One request that was admitted last; prompts have more tokens than a quarter of their bytes.
    "with a maximum": (with_a_maximum, 2 * BUDGET),
    "five choices": (choices, 2 * BUDGET),
    "clients that leave": (leaving, 2 * BUDGET),
    # Of 256 tokens each, by which a response without a maximum is estimated, four fit.
    "without a maximum": (without_a_maximum, 4 * 650),
}
"""For each way to spend a budget: one request, and the most that the service may serve."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    """A fleet where each test has a key of its own."""
    with fleet(tmp_path_factory.mktemp("budgets"), lease=PATIENT) as running:
        known = Keys(running, {"unlimited": ()})  # From the first key on, the service needs one.
        running.worker(*SLOW)
        running.api()
        yield known


@pytest.mark.parametrize("way", OVERSHOOTS)
def test_a_budget_is_exceeded_by_what_is_stated(
    shared: Keys, way: str, record_property: Callable[[str, object], None]
) -> None:
    send, most = OVERSHOOTS[way]
    running, secret = shared.fleet, shared.add(way, "--tokens-per-day", str(BUDGET))

    async def until_refused(client: httpx.AsyncClient) -> None:
        while await send(client):
            pass

    async def run() -> None:
        headers, limits = {"api-key": secret}, httpx.Limits(max_connections=COUNT)
        base = f"http://127.0.0.1:{running.port}"
        async with httpx.AsyncClient(base_url=base, headers=headers, limits=limits, timeout=PATIENCE) as client:
            await asyncio.gather(*(until_refused(client) for _ in range(COUNT)))

    asyncio.run(run())
    running.until(lambda: not shared.held(), "nothing to be held")
    used = shared.used()[way]
    record_property("served", used)
    print(f"{way}: a budget of {BUDGET} served {used}")
    assert used == shared.spent(shared.ids[way])
    assert used <= most


def test_a_batch_exceeds_a_budget_by_the_line_that_was_admitted_last(shared: Keys) -> None:
    running, secret = shared.fleet, shared.add("batch", "--tokens-per-day", str(BUDGET))
    client = running.client().with_options(api_key=secret)
    lines = [chat_line(str(line), "[[tokens 250]]", max_tokens=250) for line in range(100)]
    batch = submit(client, lines)
    running.until(lambda: shared.spent(shared.ids["batch"]) >= BUDGET and not shared.held(), "the budget to be used up")
    client.batches.cancel(batch.id)
    assert (counts := ended(client, batch).request_counts) is not None
    assert counts.completed * 250 < shared.used()["batch"] == shared.spent(shared.ids["batch"]) <= 2 * BUDGET
    print(f"a batch: a budget of {BUDGET} served {shared.used()['batch']}")
