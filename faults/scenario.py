"""What a scenario consists of: a fleet, a load, what fails and when, and what clients may notice."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from faults.prompts import Model

Moment = Literal["any", "loading", "unloading", "parked"]
"""A node loads or unloads a model, or streams wait for their model to be loaded again."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Closed-loop clients: each sends its next request when it has the answer to the last."""

    clients: int = 8
    requests: int = 10
    """Requests of each client; 0 goes on until ``seconds`` have passed."""
    seconds: float = 0.0
    tokens: int = 60
    streamed: float = 0.8
    """Share of the requests that are streamed."""
    aborted: float = 0.0
    """Share of the requests that their clients leave at a random moment."""
    sampled: bool = False
    """Whether the requests sample, so that no two attempts generate the same text."""
    stored: bool = False
    """Whether the requests ask for their answers to be stored; then all that were accepted must be, in the end."""
    background: bool = False
    """Whether the requests are for background responses, which their clients poll at any replica."""
    patience: float = 60.0
    """Seconds for which a client comes back with a request that was refused with 429 or 503, or met no server."""


@dataclass(frozen=True)
class Fault:
    """One thing done to the service: ``action`` is a method of :class:`faults.service.Service`."""

    at: float
    """Seconds after the load begins."""
    action: str
    _: KW_ONLY
    target: int = 0
    seconds: float = 0.0
    """How long the fault lasts, for those that end."""
    moment: Moment = "any"
    """What it waits for, from ``at`` on. One at a time of those that wait."""
    every: float = 0.0
    """Seconds after which it comes again, until the load ends; 0: once."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run: a fleet, a load, and what happens to it."""

    name: str
    what: str
    """One line for the report."""
    load: Load = field(default_factory=Load)
    faults: tuple[Fault, ...] = ()
    workers: int = 2
    apis: int = 1
    slots: int = 16
    step: float = 0.01
    """Seconds that a step of the simulated engine takes."""
    model: Model = "simulated"
    """What generates."""
    store: tuple[str, ...] = ("--appendonly", "yes")
    """Valkey's own options."""
    server: str = "current-valkey"
    """The store's server, one of :data:`tests.support.store_servers.SERVERS`."""
    catalogue: tuple[str, ...] = ()
    """Sources of the models of a catalogue. The ``workers`` are nodes then, each with memory for one model."""
    link: str = "direct"
    """How processes reach the store: ``direct``, ``proxy``, ``tls``, ``handover`` (an address that leads to the master)
    or ``sentinel``."""
    worker_options: tuple[str, ...] = ()
    engines: tuple[str, ...] = ("auto",)
    """``--engine`` of the workers of a real model, in turns, in the order in which they start."""
    api_options: tuple[str, ...] = ()
    visible: tuple[str, ...] = ()
    """Words, one of which each error that clients see must have; without any, there may be no error."""
    broken_connections: bool = False
    """Whether clients may see connections that end early: their API replica was killed."""
    forgetful: bool = False
    """Whether the store loses its data, so that no journal shows what happened to a request."""
    poison: int = 0
    """Number of additional clients that each send one request which kills every engine."""
    stuck: int = 0
    """Number of additional clients that open a stream and never read."""
    vectors: bool = False
    """Whether more than half of the requests are for vectors and scores, of models with a worker each. No key of the
    store may hold a vector."""
    batch: int = 0
    """Number of batch requests that is submitted before anything fails, and must be complete in the end."""
    ballast: int = 0
    """Keys in another database of the store, so that it takes a while to load after a restart."""
    locked: float = 0.0
    """Seconds for which the store asks for a password that nobody has, from the start of the processes on."""
    first_version: str = ""
    """Folder with the source of the version that the first processes run. Empty: the current one."""
    upgrade: bool = False
    """Whether those that replace them run the current version with the next protocol version, not just the current one.
    """
    ci: bool = False
    """Whether it is short enough to be part of ``make test``."""
