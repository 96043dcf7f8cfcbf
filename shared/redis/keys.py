"""Every Redis key and channel of the service, in one place.

Payloads lie under arq's own ``arq:job:`` prefix, so that arq's tools read our queues.
"""

from arq.constants import job_key_prefix

PREFIX = "vinoqueue:"
PAYLOAD_PREFIX = job_key_prefix
STATE_PREFIX = PREFIX + "state:"
JOURNAL_PREFIX = PREFIX + "journal:"
WORKER_CHANNEL_PREFIX = PREFIX + "to-worker:"
REPLICA_CHANNEL_PREFIX = PREFIX + "to-replica:"
REPLICA_PREFIX = PREFIX + "replica:"

WORKERS = PREFIX + "workers"
"""Sorted set of worker ids, scored by the Unix time (seconds) at which their lease ends."""

REPLICAS = PREFIX + "replicas"
"""Sorted set of API replica ids, scored likewise."""

MODELS = PREFIX + "models"
"""Hash of model name to the encoded facts that the last worker advertised; outlives the workers."""

OUTBOX_OWNERS = PREFIX + "outbox-owners"
"""Set with a TTL: the ids of the API replicas that may hold promises."""

API_KEYS = PREFIX + "keys"
"""Hash of API key id to the encoded record of the key, without its secret."""

DEAD_LETTERS = PREFIX + "dead-letters"
"""List of the newest payloads that no worker could read."""


def queue(model: str) -> str:
    """Sorted set of the ids of waiting jobs, scored by tier and fair share (see ``enqueue.lua``): arq's queue."""
    return f"{PREFIX}queue:{model}"


def inflight(model: str) -> str:
    """Sorted set of the ids of claimed jobs, scored by lease expiry (ms)."""
    return f"{PREFIX}inflight:{model}"


def load(model: str) -> str:
    """Sorted set of worker ids, scored by the share of their slots in use (0 to 1)."""
    return f"{PREFIX}load:{model}"


def reaped(model: str) -> str:
    """Time (ms) at which anybody last looked for lapsed claims."""
    return f"{PREFIX}reaped:{model}"


def fair_queue(model: str) -> str:
    """Hash of what fair queueing remembers: the virtual time of each band, and each tenant's finish tag in it."""
    return f"{PREFIX}fair-queue:{model}"


def prefixes(model: str) -> str:
    """Hash of bounded size: which workers have computed prompts that begin in a certain way (see ``enqueue.lua``)."""
    return f"{PREFIX}prefixes:{model}"


def reserved(model: str) -> str:
    """Sorted set of "job worker" for waiting jobs that are kept for a worker, scored by the time (ms) of its end."""
    return f"{PREFIX}reserved:{model}"


def buckets(key_id: str) -> str:
    """Hash of an API key's rate limits: for each, the time (ms) at which its bucket will be full again; and of absent
    replicas that hold places, the time since when they have been missed (see ``reserve.lua``)."""
    return f"{PREFIX}buckets:{key_id}"


def admitted(key_id: str) -> str:
    """Sorted set of an API key's requests in flight, "NAME REPLICA", scored by the time (ms) at which they are surely
    over."""
    return f"{PREFIX}admitted:{key_id}"


def payload(job: str) -> str:
    """arq's job definition (MessagePack)."""
    return PAYLOAD_PREFIX + job


def request(request_id: str) -> str:
    """Hash of a request that several jobs share: ``request``, the encoded request, and a field for each job left."""
    return f"{PAYLOAD_PREFIX}request:{request_id}"


def state(job: str) -> str:
    """Hash of a job's claims: worker, attempt, score; crashes and lost_workers; cancelled where the client has gone;
    spared: the lease end that it was given when the store had been away."""
    return STATE_PREFIX + job


def journal(job: str) -> str:
    """List of the encoded events that were published for the job so far."""
    return JOURNAL_PREFIX + job


def stored(key_id: str, completion_id: str) -> str:
    """Hash with a TTL: a completion stored under an API key (see :mod:`api.stored`)."""
    return f"{PREFIX}stored:{key_id}:{completion_id}"


def stored_index(key_id: str) -> str:
    """Sorted set of the ids of an API key's stored completions, scored by Unix time (seconds)."""
    return f"{PREFIX}stored-index:{key_id}"


def outbox(replica_id: str) -> str:
    """Hash with a TTL: the answers that an API replica has promised to store (see :mod:`api.outbox`)."""
    return f"{PREFIX}outbox:{replica_id}"


def worker(worker_id: str) -> str:
    """String with a TTL: what a worker advertises (see :mod:`shared.protocol.registry`)."""
    return f"{PREFIX}worker:{worker_id}"


def replica(replica_id: str) -> str:
    """String with a TTL: what an API replica advertises."""
    return REPLICA_PREFIX + replica_id


def worker_channel(worker_id: str) -> str:
    """Channel to one worker: wake-ups and cancellations."""
    return WORKER_CHANNEL_PREFIX + worker_id


def replica_channel(replica_id: str) -> str:
    """Channel to one API replica: frames."""
    return REPLICA_CHANNEL_PREFIX + replica_id
