"""The placement policy under a simulated load: four models on a node with room for two, whose mix shifts."""

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from worker.node.devices import HOST
from worker.node.policy import KnownModel, PolicyTimes, Residence, plan

RULES = PolicyTimes(spread_wait=10, swap_wait=20, min_residence=20, batch_idle=10)
MIX, PHASE, SECONDS = (0.55, 0.25, 0.15, 0.05), 30.0, 160.0
"""Shares of the models in the requests, which move on by one model every PHASE seconds; duration of the load."""
TICK, SERVICE, SLOTS, MAX_WAIT = 0.2, 2.5, 8, 60.0


@dataclass
class Model:
    """A model on the node: when its requests came, when its running ones end, and since when it is what it is."""

    waiting: deque[float] = field(default_factory=deque)
    ends: list[float] = field(default_factory=list)
    here: Residence = "absent"
    since: float = 0.0
    used: float = 0.0
    waiting_since: float = 0.0

    def step(self, now: float, load: float) -> int:
        """Return how many requests have begun."""
        while self.waiting and now - self.waiting[0] > MAX_WAIT:
            self.waiting.popleft()
        if self.here == "loading" and now - self.since > load:
            self.here, self.since = "loaded", now
        self.ends = [end for end in self.ends if end > now]
        if self.here == "unloading" and not self.ends:
            self.here = "absent"
        began = min(len(self.waiting), SLOTS - len(self.ends)) if self.here == "loaded" else 0
        for _ in range(began):
            self.waiting.popleft()
        self.ends += [now + SERVICE] * began
        if self.ends:
            self.used = now
        if not self.waiting:
            self.waiting_since = now
        return began

    def state(self, name: str, now: float, load: float) -> KnownModel:
        return KnownModel(
            name=name,
            priority=1,
            keep=900,
            least=0,
            most=1,
            memory={HOST: 1},
            load_seconds=load,
            waiting=len(self.waiting),
            waited=now - self.waiting_since,
            tokens=300 * len(self.waiting),
            workers=int(self.here != "absent"),
            here=self.here,
            resident=now - self.since,
            idle=now - self.used,
        )


def arrivals_at(rate: float, names: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Return the seconds at which requests come, ``rate`` per second by chance, and their models."""
    dice = random.Random(34)
    at = 0.0
    while (at := at + dice.expovariate(rate)) < SECONDS:
        turn = int(at / PHASE) % len(names)
        yield at, dice.choices([*names[turn:], *names[:turn]], MIX)[0]


def completed(load: float, rate: float) -> float:
    """Return the share of requests that begin within the maximum wait. ``load`` is the time to load a model."""
    models = {name: Model() for name in "abcd"}
    arrivals = deque(arrivals_at(rate, list(models)))
    requests, began, now = len(arrivals), 0, 0.0
    while arrivals or any(model.waiting for model in models.values()):
        while arrivals and arrivals[0][0] <= now:
            at, name = arrivals.popleft()
            models[name].waiting.append(at)
        began += sum(model.step(now, load) for model in models.values())
        found = plan([model.state(name, now, load) for name, model in models.items()], {HOST: 2}, RULES)
        for name in found.load:
            models[name].here, models[name].since = "loading", now
        for name in found.unload:
            models[name].here = "unloading"
        now += TICK
    return began / requests


@pytest.mark.parametrize(
    ("load", "rate", "least"), [(3, 4, 1.0), (3, 6, 0.98), (20, 3, 0.96), (20, 4.5, 0.9), (20, 6, 0.84)]
)
def test_requests_are_completed(load: float, rate: float, least: float) -> None:
    """If models were used only for as long as their load has taken: 0.97, 0.80 and 0.63 with loads of 20 s."""
    assert completed(load, rate) >= least
