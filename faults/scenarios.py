"""The scenarios as data."""

import random
from dataclasses import replace
from typing import Any

from faults.scenario import Fault, Load, Scenario

PLANNED = (
    "--appendonly", "yes", "--repl-diskless-sync-delay", "0",
    "--min-replicas-to-write", "1", "--min-replicas-max-lag", "10",
)  # fmt: skip
AOF_ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
BURST = Load(clients=8, requests=8, tokens=80)


def soak(seed: int, seconds: float) -> Scenario:
    """A random mix of faults, made from ``seed``, with a pause between them in which the service can recover."""
    dice = random.Random(f"soak {seed}")
    choices = (
        ("kill_worker", 0.0),
        ("kill_engine", 0.0),
        ("kill_prompt", 0.0),
        ("freeze_worker", 4.0),
        ("freeze_engine", 1.5),
        ("restart_store", 1.0),
        ("freeze_store", 3.0),
        ("cut_worker", 4.0),
        ("drain_worker", 0.0),
        ("drain_api", 0.0),
        ("slow_store", 3.0),
    )
    faults: list[Fault] = []
    at = 2.0
    while at < seconds - 6:
        action, longest = dice.choice(choices)
        length = longest * dice.uniform(0.3, 1.0)
        faults.append(Fault(at, action, target=dice.randrange(3), seconds=length))
        at += length + dice.uniform(2.0, 5.0)
    return Scenario(
        name=f"soak-{seed}",
        what=f"{len(faults)} faults at random in {seconds:.0f} s, one request in ten aborted (seed {seed})",
        load=Load(clients=12, requests=0, seconds=seconds, tokens=60, aborted=0.1),
        faults=tuple(faults),
        workers=3,
        apis=2,
        store=AOF_ALWAYS,
        link="proxy",
    )


def _turns(at: float, *actions: str) -> tuple[Fault, ...]:
    """Return faults that replace one process after the other, from ``at`` on."""
    return tuple(Fault(at + 5 * index, action) for index, action in enumerate(actions))


_DYNAMO = Scenario(
    name="dynamo",
    what="8 clients with 100 requests each, one of four workers killed in the middle (Dynamo's published test)",
    load=Load(clients=8, requests=100, tokens=30, streamed=1.0),
    faults=(Fault(15, "kill_worker", target=1),),
    workers=4,
)

_NODES = Scenario(
    name="nodes",
    what="three models on two nodes with memory for one each: no stream is lost by a swap",
    load=Load(clients=6, requests=5, tokens=80, patience=240),
    catalogue=("[[vocabulary 1]]", "[[vocabulary 2]]", "[[vocabulary 3]]"),
    step=0.03,
    worker_options=("--swap-wait", "1", "--swap-drain", "0.3"),
    api_options=("--queue-timeout", "240"),
    store=AOF_ALWAYS,
)
"""The texts of its models differ, so that one that continued a stream of another would be seen."""


def _on_nodes(name: str, what: str, *faults: Fault, **changes: Any) -> Scenario:
    return replace(_NODES, name=name, what=what, faults=faults, **changes)


def _run(name: str, what: str, *faults: Fault, **fields: Any) -> Scenario:
    """Return a scenario under :data:`BURST` if ``fields`` have no other load."""
    fields.setdefault("load", BURST)
    return Scenario(name=name, what=what, faults=faults, **fields)


SCENARIOS: tuple[Scenario, ...] = (
    _run("calm", "nothing fails"),
    _run("worker-killed", "kill -9 of one of two workers", Fault(1, "kill_worker"), ci=True),
    _run("worker-frozen", "SIGSTOP of a worker for 5 s, longer than its lease", Fault(1, "freeze_worker", seconds=5)),
    _run(
        "worker-cut-off",
        "network between one worker and the store lost for 6 s",
        Fault(1, "cut_worker", seconds=6),
        link="proxy",
    ),
    _run("worker-drained", "SIGTERM of one of two workers", Fault(1, "drain_worker")),
    _run("engine-killed", "kill -9 of a worker's engine process", Fault(1, "kill_engine")),
    _run("engine-hung", "SIGSTOP of an engine process for good", Fault(1, "freeze_engine", seconds=8)),
    _run("prompt-killed", "kill -9 of a worker's prompt process, three times", Fault(0.5, "kill_prompt", every=1)),
    _run(
        "poison",
        "a request that kills every engine it meets, among other requests",
        poison=1,
        visible=("engine_crash_loop", "not be tried again"),
    ),
    _run(
        "api-killed",
        "kill -9 of one of two API replicas",
        Fault(1, "kill_api"),
        apis=2,
        broken_connections=True,
        ci=True,
    ),
    _run(
        "rolling-restart",
        "SIGTERM and replacement of every worker and API replica in turn, under load",
        *_turns(1, "drain_worker", "drain_worker", "drain_api", "drain_api"),
        load=Load(clients=8, requests=0, seconds=25, tokens=80),
        apis=2,
    ),
    _run(
        "rolling-upgrade",
        "the same with replacements of the next protocol version, and then back in the opposite order",
        *_turns(1, "drain_worker", "drain_worker", "drain_api", "drain_api"),
        Fault(21, "roll_back"),
        *_turns(22, "drain_api", "drain_api", "drain_worker", "drain_worker"),
        load=Load(clients=8, requests=0, seconds=45, tokens=80),
        apis=2,
        upgrade=True,
    ),
    _run(
        "upgrade-in-wrong-order",
        "SIGTERM and replacement by the next protocol version, API replicas before workers",
        *_turns(1, "drain_api", "drain_api", "drain_worker", "drain_worker"),
        load=Load(clients=8, requests=0, seconds=25, tokens=80),
        apis=2,
        upgrade=True,
    ),
    _run(
        "store-restarted",
        "kill -9 and restart of the store after 1 s, append-only file",
        Fault(1, "restart_store", seconds=1),
        store=AOF_ALWAYS,
    ),
    _run(
        "store-restarted-often",
        "kill -9 of the store every 20 s, 3 s until it is back, append-only file",
        Fault(5, "restart_store", seconds=3, every=20),
        load=Load(clients=8, requests=0, seconds=75, tokens=1500),
        store=AOF_ALWAYS,
    ),
    _run(
        "store-forgets",
        "kill -9 and restart of the store without persistence",
        Fault(1, "restart_store", seconds=0.5),
        store=(),
        visible=("lost in an outage", "store behind this service", "No worker", "does not exist"),
        forgetful=True,
    ),
    _run(
        "store-frozen",
        "SIGSTOP of the store for 15 s",
        Fault(1, "freeze_store", seconds=15),
        load=Load(clients=8, requests=4, tokens=400),
    ),
    _run(
        "store-cut-off",
        "network between all processes and the store lost for 20 s",
        Fault(1, "cut_all", seconds=20),
        load=Load(clients=8, requests=4, tokens=400),
        link="proxy",
    ),
    _run(
        "store-slow", "20 ms of delay to and from the store, for 5 s", Fault(1, "slow_store", seconds=5), link="proxy"
    ),
    _run("store-full", "the store's memory limit reached for 4 s", Fault(1, "fill_store", seconds=4)),
    _run("store-read-only", "the store a read-only replica for 4 s", Fault(1, "demote_store", seconds=4)),
    _run(
        "store-password",
        "the store's password changed for 4 s while requests run, connections closed",
        Fault(1, "change_password", seconds=4),
    ),
    _run("store-locked", "the store's password wrong from the start of every process, corrected after 5 s", locked=5),
    _run(
        "store-loading",
        "kill -9 and restart at once of a store that takes two seconds or more to load its append-only file",
        Fault(1, "restart_store"),
        store=(*AOF_ALWAYS, "--enable-debug-command", "local"),
        ballast=3_000_000,
    ),
    Scenario(
        name="store-failover",
        what="kill -9 of the master; a Sentinel promotes its replica",
        load=Load(clients=8, requests=8, tokens=80),
        faults=(Fault(1, "kill_master"),),
        link="sentinel",
        # A replica that joins is sent everything at once, not after the usual wait for others.
        store=("--appendonly", "yes", "--repl-diskless-sync-delay", "0"),
        # Replication is asynchronous: what the replica had not received is lost, and its clients get an error.
        visible=("lost in an outage",),
    ),
    Scenario(
        name="store-failover-rewound",
        what="sampled texts; SIGSTOP of the master for good; its replica lacks the writes of 0.5 s; a worker killed",
        # Half of the requests wait as long as an answer takes: they are claimed in the half second that is lost.
        load=Load(clients=16, requests=8, tokens=60, sampled=True),
        faults=(Fault(2, "freeze_master", seconds=0.5), Fault(2.6, "kill_worker")),
        slots=4,
        link="sentinel",
        store=("--appendonly", "yes", "--repl-diskless-sync-delay", "0"),
        visible=("lost in an outage",),
        forgetful=True,
        ci=True,
    ),
    *(
        Scenario(
            name=f"store-handover{suffix}",
            what=f"FAILOVER of a healthy {name} behind an address that sends only new connections to the new master",
            load=Load(clients=8, requests=4, tokens=300),
            faults=(Fault(1, "hand_over"),),
            apis=2,
            link="handover",
            store=("--appendonly", "yes", "--repl-diskless-sync-delay", "0"),
            server=server,
            ci=not suffix,
        )
        for suffix, name, server in (("", "Valkey", "current-valkey"), ("-redis", "Redis 7", "oldest-redis"))
    ),
    *(
        Scenario(
            name=f"store-failover-planned{suffix}",
            what=f"{how} of a healthy master with min-replicas-to-write 1",
            load=Load(clients=8, requests=4, tokens=300),
            faults=(Fault(1, action),),
            apis=2,
            link="sentinel",
            store=PLANNED,
            server=server,
        )
        for suffix, how, action, server in (
            ("", "SENTINEL FAILOVER", "hand_over_by_sentinel", "current-valkey"),
            ("-redis", "SENTINEL FAILOVER (Redis 7)", "hand_over_by_sentinel", "oldest-redis"),
            ("-coordinated", "SENTINEL FAILOVER COORDINATED", "hand_over_coordinated", "current-valkey"),
        )
    ),
    _run(
        "store-rolling-upgrade",
        "Valkey 9.0 is replaced by the current one, replica first, by FAILOVER there and back; streams of 20 s",
        Fault(1, "upgrade_replica"),
        Fault(6, "hand_over"),
        Fault(9, "upgrade_replica"),
        Fault(15, "hand_over"),
        load=Load(clients=8, requests=2, tokens=2000),
        apis=2,
        link="handover",
        store=("--appendonly", "yes", "--repl-diskless-sync-delay", "0"),
        server="oldest-valkey",
    ),
    _run("store-tls", "rediss:// with a private certificate authority", link="tls"),
    _run(
        "aborts",
        "10,000 requests, all aborted by their clients at random moments",
        load=Load(clients=50, requests=200, tokens=200, streamed=0.5, aborted=1.0),
        step=0.02,
    ),
    _run(
        "aborts-in-outages",
        "requests aborted at random moments while the store is killed and frozen",
        Fault(2, "restart_store", seconds=2),
        Fault(7, "freeze_store", seconds=3),
        load=Load(clients=30, requests=0, seconds=15, tokens=400, streamed=0.5, aborted=0.9),
        store=AOF_ALWAYS,
    ),
    _run(
        "stuck-clients",
        "1,000 clients that never read, and 8 that do",
        load=Load(clients=8, requests=6, tokens=25),
        stuck=1000,
        slots=520,
        step=0.1,
        api_options=("--client-timeout", "3"),
    ),
    _run(
        "capacity",
        "as many clients as slots: what the fleet can do",
        load=Load(clients=16, requests=0, seconds=20, tokens=50),
        slots=8,
        step=0.02,
    ),
    _run(
        "overload",
        "three times as many clients as slots, a queue of 8: tokens per second to be compared with `capacity`",
        load=Load(clients=48, requests=0, seconds=20, tokens=50),
        slots=8,
        step=0.02,
        api_options=("--max-queue", "8"),
    ),
    _DYNAMO,
    replace(
        _DYNAMO,
        name="dynamo-real",
        what="8 clients with 100 requests each on the real model, one of two workers killed in the middle",
        load=Load(clients=8, requests=100, tokens=16, streamed=1.0, patience=120),
        model="default",
        workers=2,
        slots=8,
        worker_options=("--precision", "exact"),
    ),
    _run(
        "both-engines",
        "a worker with the batched engine and one with the stateful one on the real model, in exact precision; "
        "an engine and a worker are killed, frozen and drained, so that requests change engines both ways",
        Fault(4, "kill_engine", target=1),
        Fault(20, "kill_worker", target=0),
        Fault(45, "freeze_worker", target=0, seconds=6),
        Fault(60, "drain_worker", target=1),
        Fault(80, "freeze_engine", target=0, seconds=20),
        load=Load(clients=6, requests=10, tokens=24, streamed=1.0, patience=120),
        model="default",
        slots=4,
        worker_options=("--precision", "exact"),
        engines=("batched", "stateful", "batched"),
    ),
    _run(
        "pictures",
        "200 requests with pictures to a vision-language model; a worker killed every 8 s, an engine every 5 s",
        Fault(1, "kill_worker", every=8),
        Fault(4, "kill_engine", target=1, every=5),
        load=Load(clients=8, requests=25, tokens=120, streamed=1.0),
        model="pictures",
        workers=3,
        slots=8,
        worker_options=("--precision", "exact"),
    ),
    _run(
        "pictures-both-engines",
        "requests with pictures to workers with the batched engine and one with the stateful one; an engine and a "
        "worker are killed, frozen and drained, so that requests change engines both ways",
        Fault(3, "kill_engine", target=1),
        Fault(10, "kill_worker", target=0),
        Fault(20, "freeze_worker", target=0, seconds=6),
        Fault(30, "drain_worker", target=1),
        Fault(40, "freeze_engine", target=0, seconds=20),
        load=Load(clients=6, requests=15, tokens=60, streamed=1.0),
        model="pictures",
        slots=4,
        worker_options=("--precision", "exact"),
        engines=("batched", "stateful", "batched"),
    ),
    _run(
        "pictures-full",
        "requests with pictures, while the store may hold the bytes of two of them",
        load=Load(clients=8, requests=10, tokens=60, streamed=1.0),
        model="pictures",
        slots=8,
        worker_options=("--precision", "exact"),
        api_options=("--max-media-bytes", "1000"),
    ),
    _run(
        "batch",
        "a batch of 2,000 lines and 2 clients; every 16 s, an API replica, a worker and the store are killed",
        Fault(4, "kill_api", every=16),
        Fault(9, "kill_worker", every=16),
        Fault(14, "restart_store", seconds=1, every=16),
        load=Load(clients=2, requests=0, seconds=60, tokens=60),
        batch=2000,
        apis=2,
        store=AOF_ALWAYS,
        broken_connections=True,
    ),
    _run(
        "batch-store-rewound",
        "a batch of 2,000 lines and a client; the store is killed every 6 s and loses up to a second",
        Fault(4, "restart_store", seconds=1, every=6),
        load=Load(clients=1, requests=0, seconds=60, tokens=60),
        batch=2000,
        apis=2,
        store=("--appendonly", "yes", "--appendfsync", "everysec"),
        visible=("lost in an outage", "store behind this service", "No worker", "does not exist"),
        forgetful=True,
    ),
    _run(
        "vectors",
        "500 requests for vectors and scores among chats; kills of a worker every 2 s, of API and store every 6 s",
        Fault(1, "kill_api", every=6),
        Fault(2, "kill_worker", every=2),
        Fault(5, "restart_store", seconds=0.5, every=6),
        load=Load(clients=12, requests=75, tokens=60),
        apis=2,
        store=AOF_ALWAYS,
        broken_connections=True,
        vectors=True,
    ),
    _run(
        "background",
        "background responses; every 3 s an API replica is killed, every 4 s a worker, and the store once",
        Fault(1, "kill_api", every=3),
        Fault(2.5, "kill_worker", every=4),
        Fault(6, "restart_store", seconds=1),
        load=Load(clients=16, requests=8, tokens=150, background=True),
        apis=2,
        store=AOF_ALWAYS,
    ),
    _run(
        "api-killed-storing",
        "kill -9 of one of two API replicas, while all answers are to be stored",
        Fault(1, "kill_api"),
        load=replace(BURST, stored=True),
        apis=2,
        broken_connections=True,
    ),
    _NODES,
    _on_nodes(
        "node-killed-loading",
        "kill -9 of a node while it loads a model",
        Fault(0, "kill_worker", moment="loading"),
    ),
    _on_nodes(
        "node-killed-draining",
        "kill -9 of a node while a model drains",
        Fault(0, "kill_worker", moment="unloading"),
    ),
    _on_nodes(
        "node-killed-parked",
        "kill -9 of a node while streams wait for their model to be loaded again",
        Fault(0, "kill_worker", moment="parked"),
    ),
    _on_nodes(
        "nodes-store-restarted",
        "kill -9 and restart of the store while models are loaded, drained, and awaited by their streams",
        Fault(0, "restart_store", seconds=1, moment="loading"),
        Fault(1, "restart_store", seconds=1, moment="unloading"),
        Fault(2, "restart_store", seconds=1, moment="parked"),
    ),
    _on_nodes(
        "nodes-store-forgets",
        "kill -9 and restart of the store without persistence while streams wait for their model to be loaded again",
        Fault(0, "restart_store", seconds=0.5, moment="parked"),
        store=(),
        visible=("lost in an outage", "store behind this service", "No worker", "does not exist"),
        forgetful=True,
    ),
    _on_nodes(
        "nodes-store-lost-and-node-killed",
        "kill -9 of the store while a model drains, and of a node while another one is loaded",
        Fault(0, "restart_store", seconds=3, moment="unloading"),
        Fault(1, "kill_worker", moment="loading"),
    ),
    _on_nodes(
        "memory-lower-than-declared",
        "the engines of three models are killed while nodes load them, as for lack of memory",
        *(Fault(3 * number, "kill_loading", moment="loading") for number in range(3)),
    ),
    _on_nodes(
        "model-crashes-at-load",
        "one of three models kills its engine at each load: it is named, and the others are served",
        catalogue=("[[vocabulary 1]] [[load 1]]", "[[vocabulary 2]] [[load 1]]", "[[crash load]]"),
        load=Load(clients=6, requests=5, tokens=80, patience=2),
        # Its clients would otherwise wait for the queue timeout.
        api_options=(*_NODES.api_options, "--worker-grace", "5"),
        visible=("can't be loaded", "lost its last worker"),
    ),
)


def scenario(name: str) -> Scenario:
    """The scenario called ``name``. Raises :class:`KeyError` when there is none."""
    return {one.name: one for one in SCENARIOS}[name]
