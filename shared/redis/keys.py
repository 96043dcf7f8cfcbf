"""Every Redis key and channel of the service, in one place.

A key or channel of one object is a function of the object's name, and of the empty name, its prefix.

Payloads use arq's ``arq:job:`` prefix, so that arq's tools can read the queues.
"""

from collections.abc import Callable

from arq.constants import job_key_prefix

PREFIX = "vinoqueue:"
PAYLOAD_PREFIX = job_key_prefix
STORED_PREFIX = PREFIX + "stored:"
STORED_JOURNAL_PREFIX = PREFIX + "stored-journal:"

WORKERS = PREFIX + "workers"
"""Sorted set of worker ids, scored by the Unix time (seconds) at which their lease ends."""

REPLICAS = PREFIX + "replicas"
"""Sorted set of API replica ids, scored likewise."""

NODES = PREFIX + "nodes"
"""Sorted set of node ids, scored likewise."""

MODELS = PREFIX + "models"
"""Hash of model name to the model's record, as last announced by a worker; outlives the workers by an hour."""

MODELS_SEEN = PREFIX + "models-seen"
"""Sorted set of the names in :data:`MODELS`, scored by the Unix time (seconds) of their last announcement."""

STORED_SIZES = PREFIX + "stored-sizes"
"""Hash of stored response id to "BYTES OWNER", the bytes that it takes in the store; the empty field is the total."""

STORED_OWNERS = PREFIX + "stored-owners"
"""Sorted set of the owners of stored responses (API key ids, or empty), scored by the bytes of their responses."""

STORED_EXPIRY = PREFIX + "stored-expiry"
"""Sorted set of the ids of all stored responses, scored by the Unix time (ms) at which they expire."""

API_KEYS = PREFIX + "keys"
"""Hash of API key id to the encoded record of the key, without its secret."""

CLOSED = PREFIX + "replicas-closed"
"""String: set once a replica has seen an API key in the store. Replicas never serve requests without a key again."""

TEAMS = PREFIX + "teams"
"""Hash of team id to the encoded record of the team."""

AUDIT = PREFIX + "audit"
"""Stream of bounded length: the changes of keys, teams, batches, workers and models (see :mod:`api.keys.audit`)."""

UNFINISHED_BATCHES = PREFIX + "batches"
"""Sorted set of the ids of unfinished batches, scored by the time (ms) at which the lease of their feeder ends."""

FILES_FOLDER = PREFIX + "files-folder"
"""String: the name of the folder in ``--files-dir`` with the contents of files (see :mod:`api.files.folder`)."""


def _named(kind: str) -> Callable[[str], str]:
    """Return the function from a name to the key ``vinoqueue:KIND:NAME``."""
    return lambda name: f"{PREFIX}{kind}:{name}"


# By model.

queue = _named("queue")
"""Sorted set of the ids of waiting jobs, scored by priority class and start tag (``enqueue.lua``): arq's queue. Scores
of jobs that keep their slots have a half."""

inflight = _named("inflight")
"""Sorted set of the ids of claimed jobs, scored by lease expiry (ms)."""

claims = _named("claims")
"""Hash of the ids of claimed jobs to attempt and worker, "!" first if cancelled; of "worker ID" to its last step."""

sizes = _named("sizes")
"""Hash of the bytes of the queued and claimed jobs, their shared requests and images: of each, and their sums (see
the queue's ``prelude.lua``)."""

dead_letters = _named("dead-letters")
"""List of the newest payloads that no worker could read."""

load = _named("load")
"""Sorted set of worker ids, scored by the share of their slots in use (0 to 1)."""

serving = _named("serving")
"""Hash with a TTL: the ids of the workers that serve a model to what the queue's scripts must know of each (see the
queue's ``prelude.lua``)."""

ended = _named("ended")
"""Stream with a TTL: what jobs that have ended have used, until it is counted (see ``book.lua``)."""

booking = _named("booking")
"""String with a TTL: somebody counts what is in :data:`ended`."""

reaped = _named("reaped")
"""Time (ms) of the last reaping."""

moves = _named("moves")
"""List of the last moves of jobs to the queue and to other workers, as JSON, newest first. It has a TTL."""

fair_queue = _named("fair-queue")
"""Hash with the state of fair queueing by priority class: its virtual time, and each tenant's finish tags."""

prefixes = _named("prefixes")
"""Hash of bounded size: the workers that have computed each prompt prefix (see ``enqueue.lua``)."""

reserved = _named("reserved")
"""Sorted set of "JOB WORKER" for reserved jobs, scored by the end of the reservation (ms)."""

placements = _named("placements")
"""Sorted set with a TTL: the ids of the nodes that load or serve a model, scored by the end of their lease (ms)."""

model_command = _named("model-command")
"""String with a TTL: an operator's command to load or unload a model (see :mod:`shared.protocol.model_commands`)."""

# By day.

usage = _named("usage")
"""Hash with a TTL: "KEY KIND MODEL" to what that API key used of the model on a day (see :mod:`shared.protocol.usage`).
KEY is "KEY@TEAM" for a key of a team. The kind is "batch" for batch requests, else "other"."""

USAGE_BOOKED = PREFIX + "usage-booked"
"""Hash with a TTL: the model to the newest entry of :data:`ended` that :data:`usage` counts."""

# By job, or by request.

noted = _named("noted")
"""String with a TTL: the reasoning of the request with this first job is noted (see ``note.lua``)."""


def payload(job: str) -> str:
    """arq's job definition (MessagePack)."""
    return PAYLOAD_PREFIX + job


def request(request_id: str) -> str:
    """Hash of a shared request: ``request``, the encoded request, and a field for each unfinished job. With images:
    their number ``images``, and the file of each, ``image:DIGEST``."""
    return f"{PAYLOAD_PREFIX}request:{request_id}"


state = _named("state")
"""Hash of a job's state: ``attempt``, ``score``, ``crashes``, ``lost_workers``; ``cause`` and ``source``, why
the job last went back to the queue and from which worker; ``vocabulary``, the digest of the
vocabulary and chat template of the attempt that generated its tokens, or else of the last one; ``cancelled``, the
terminal event, if it is; ``spared``, the lease end to which it was extended after an outage of the store."""

journal = _named("journal")
"""List of the encoded events published for the job so far."""

journal_steps = _named("journal:steps")
"""List with a TTL: the events of a worker's last steps that are in no journal yet (see the queue's ``prelude.lua``)."""

journal_needed = _named("journal:needed")
"""String with a TTL: a stored response without a document needs the job's journal, for this long."""


# By API key, or by team ("team:ID").

buckets = _named("buckets")
"""Hash of the rate limits of an API key or a team: for each limit, the time (ms) at which its bucket is full again; for
each absent replica that holds concurrency places, the time since when it is absent; ``reserved``, the tokens of all
reservations (see ``reserve.lua``)."""

spent = _named("spent")
"""Hash with a TTL: the tokens that an API key or a team used on each day of the last month, by the day's number; for
budgets."""

spent_booked = _named("spent-booked")
"""As :data:`USAGE_BOOKED`, for :data:`spent`."""

admitted = _named("admitted")
"""Sorted set of the requests in flight of an API key or a team, "TOKENS NAME REPLICA", scored by the time (ms) by which
they have certainly ended."""


def stored(key_id: str, response_id: str) -> str:
    """Hash with a TTL: a chat completion or response stored under an API key (see :mod:`api.stored`)."""
    return f"{STORED_PREFIX}{key_id}:{response_id}"


def cursor(index: str, name: str) -> str:
    """The place in ``index`` of the entry ``name``, after which a page of a list ended."""
    return f"{index}:after:{name}"


stored_index = _named("stored-index")
"""Sorted set of the ids of an API key's stored responses that have ended, scored by the Unix time (seconds) at
which they ended or were last continued."""

stored_running = _named("stored-running")
"""Sorted set of the ids of an API key's stored responses without a document, scored by the Unix time (seconds) at
which they were accepted."""


def stored_journal(key_id: str, response_id: str) -> str:
    """List with a TTL: the journal of the job of a background response that has ended."""
    return f"{STORED_JOURNAL_PREFIX}{key_id}:{response_id}"


file_index = _named("file-index")
"""Sorted set with a TTL: the ids of an API key's files, scored by Unix time (seconds)."""

file_sizes = _named("file-sizes")
"""Hash with a TTL: the sizes of an API key's files by id, and their sum under the empty id (bytes)."""

batch_index = _named("batch-index")
"""Sorted set with a TTL: the ids of an API key's batches, scored by Unix time (seconds)."""

# By their own id.

file = _named("file")
"""String with a TTL: the record of a file (see :mod:`api.files`)."""

batch = _named("batch")
"""Hash of a batch: ``record``, ``revision``, ``epoch``, ``done`` and ``cancelling`` (see :mod:`api.batches.store`).
It has a TTL when the batch has ended."""

worker = _named("worker")
"""String with a TTL: a worker's registry record (see :mod:`shared.protocol.registry`)."""

replica = _named("replica")
"""String with a TTL: an API replica's registry record."""

node = _named("node")
"""String with a TTL: a node's registry record."""


# Channels. Pub/sub is not per database, so their names contain its number. Database 0 has the names of earlier
# releases, whose processes may run at the same time.


def _channel(kind: str, database: int, name: str) -> str:
    return f"{PREFIX}{kind}{f'@{database}' if database else ''}:{name}"


def worker_channel(worker: str, database: int = 0) -> str:
    """Channel to one worker: wake-ups, cancellations and commands of operators."""
    return _channel("to-worker", database, worker)


def replica_channel(replica: str, database: int = 0) -> str:
    """Channel to one API replica: frames."""
    return _channel("to-replica", database, replica)
