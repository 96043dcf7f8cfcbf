"""Every Redis key and channel of the service, in one place.

Payloads use arq's ``arq:job:`` prefix, so that arq's tools can read the queues.
"""

from arq.constants import job_key_prefix

PREFIX = "vinoqueue:"
PAYLOAD_PREFIX = job_key_prefix
STATE_PREFIX = PREFIX + "state:"
JOURNAL_PREFIX = PREFIX + "journal:"
WORKER_CHANNEL_PREFIX = PREFIX + "to-worker:"
REPLICA_CHANNEL_PREFIX = PREFIX + "to-replica:"
REPLICA_PREFIX = PREFIX + "replica:"
FILE_PREFIX = PREFIX + "file:"
BATCH_PREFIX = PREFIX + "batch:"
STORED_PREFIX = PREFIX + "stored:"
STORED_INDEX_PREFIX = PREFIX + "stored-index:"
STORED_RUNNING_PREFIX = PREFIX + "stored-running:"
STORED_JOURNAL_PREFIX = PREFIX + "stored-journal:"

WORKERS = PREFIX + "workers"
"""Sorted set of worker ids, scored by the Unix time (seconds) at which their lease ends."""

REPLICAS = PREFIX + "replicas"
"""Sorted set of API replica ids, scored likewise."""

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

UNFINISHED_BATCHES = PREFIX + "batches"
"""Sorted set of the ids of unfinished batches, scored by the time (ms) at which the lease of their feeder ends."""

FILES_FOLDER = PREFIX + "files-folder"
"""String: the name of the folder in ``--files-dir`` with the contents of files (see :mod:`api.files.folder`)."""


def queue(model: str) -> str:
    """Sorted set of the ids of waiting jobs, scored by priority class and start tag (``enqueue.lua``): arq's queue."""
    return f"{PREFIX}queue:{model}"


def inflight(model: str) -> str:
    """Sorted set of the ids of claimed jobs, scored by lease expiry (ms)."""
    return f"{PREFIX}inflight:{model}"


def claims(model: str) -> str:
    """Hash of the ids of claimed jobs to the attempt and the worker, after "!" when the job is cancelled."""
    return f"{PREFIX}claims:{model}"


def sizes(model: str) -> str:
    """Hash of the bytes of the queued and claimed jobs, their shared requests and images: of each, and their sums (see
    the queue's ``prelude.lua``)."""
    return f"{PREFIX}sizes:{model}"


def dead_letters(model: str) -> str:
    """List of the newest payloads that no worker could read."""
    return f"{PREFIX}dead-letters:{model}"


def load(model: str) -> str:
    """Sorted set of worker ids, scored by the share of their slots in use (0 to 1)."""
    return f"{PREFIX}load:{model}"


def reaped(model: str) -> str:
    """Time (ms) of the last reaping."""
    return f"{PREFIX}reaped:{model}"


def moves(model: str) -> str:
    """List of the last moves of jobs to the queue and to other workers, as JSON, newest first. It has a TTL."""
    return f"{PREFIX}moves:{model}"


def fair_queue(model: str) -> str:
    """Hash with the state of fair queueing by priority class: its virtual time, and each tenant's finish tag."""
    return f"{PREFIX}fair-queue:{model}"


def charged(job: str) -> str:
    """String with a TTL: the charge of the request with this first job was corrected (see ``charge.lua``)."""
    return f"{PREFIX}charged:{job}"


def prefixes(model: str) -> str:
    """Hash of bounded size: the workers that have computed each prompt prefix (see ``enqueue.lua``)."""
    return f"{PREFIX}prefixes:{model}"


def reserved(model: str) -> str:
    """Sorted set of "JOB WORKER" for reserved jobs, scored by the end of the reservation (ms)."""
    return f"{PREFIX}reserved:{model}"


def buckets(key_id: str) -> str:
    """Hash of an API key's rate limits: for each limit, the time (ms) at which its bucket is full again; for each
    absent replica that holds concurrency places, the time since when it is absent (see ``reserve.lua``)."""
    return f"{PREFIX}buckets:{key_id}"


def admitted(key_id: str) -> str:
    """Sorted set of an API key's requests in flight, "NAME REPLICA", scored by the time (ms) by which they have
    certainly ended."""
    return f"{PREFIX}admitted:{key_id}"


def payload(job: str) -> str:
    """arq's job definition (MessagePack)."""
    return PAYLOAD_PREFIX + job


def request(request_id: str) -> str:
    """Hash of a shared request: ``request``, the encoded request, and a field for each unfinished job. With images:
    their number ``images``, and the file of each, ``image:DIGEST``."""
    return f"{PAYLOAD_PREFIX}request:{request_id}"


def state(job: str) -> str:
    """Hash of a job's state: ``attempt``, ``score``, ``crashes``, ``lost_workers``; ``cause`` and ``source``, why
    the job last went back to the queue and from which worker; ``vocabulary``, the digest of the
    vocabulary and chat template of the attempt that generated its tokens, or else of the last one; ``cancelled``, the
    terminal event, if it is; ``spared``, the lease end to which it was extended after an outage of the store."""
    return STATE_PREFIX + job


def journal(job: str) -> str:
    """List of the encoded events published for the job so far."""
    return JOURNAL_PREFIX + job


def journal_needed(job: str) -> str:
    """String with a TTL: a stored response without a document needs the job's journal, for this long."""
    return f"{JOURNAL_PREFIX}needed:{job}"


def stored(key_id: str, response_id: str) -> str:
    """Hash with a TTL: a chat completion or response stored under an API key (see :mod:`api.stored`)."""
    return f"{STORED_PREFIX}{key_id}:{response_id}"


def stored_index(key_id: str) -> str:
    """Sorted set of the ids of an API key's stored responses that have ended, scored by the Unix time (seconds) at
    which they ended or were last continued."""
    return f"{STORED_INDEX_PREFIX}{key_id}"


def stored_running(key_id: str) -> str:
    """Sorted set of the ids of an API key's stored responses without a document, scored by the Unix time (seconds) at
    which they were accepted."""
    return f"{STORED_RUNNING_PREFIX}{key_id}"


def stored_journal(key_id: str, response_id: str) -> str:
    """List with a TTL: the journal of the job of a background response that has ended."""
    return f"{STORED_JOURNAL_PREFIX}{key_id}:{response_id}"


def file(file_id: str) -> str:
    """String with a TTL: the record of a file (see :mod:`api.files`)."""
    return FILE_PREFIX + file_id


def file_index(key_id: str) -> str:
    """Sorted set with a TTL: the ids of an API key's files, scored by Unix time (seconds)."""
    return f"{PREFIX}file-index:{key_id}"


def file_sizes(key_id: str) -> str:
    """Hash with a TTL: the sizes of an API key's files by id, and their sum under the empty id (bytes)."""
    return f"{PREFIX}file-sizes:{key_id}"


def batch(batch_id: str) -> str:
    """Hash of a batch: ``record``, ``revision``, ``epoch``, ``done`` and ``cancelling`` (see :mod:`api.batches.store`).
    It has a TTL when the batch has ended."""
    return BATCH_PREFIX + batch_id


def batch_index(key_id: str) -> str:
    """Sorted set with a TTL: the ids of an API key's batches, scored by Unix time (seconds)."""
    return f"{PREFIX}batch-index:{key_id}"


def worker(worker_id: str) -> str:
    """String with a TTL: a worker's registry record (see :mod:`shared.protocol.registry`)."""
    return f"{PREFIX}worker:{worker_id}"


def replica(replica_id: str) -> str:
    """String with a TTL: an API replica's registry record."""
    return REPLICA_PREFIX + replica_id


def worker_channel(worker_id: str) -> str:
    """Channel to one worker: wake-ups and cancellations."""
    return WORKER_CHANNEL_PREFIX + worker_id


def replica_channel(replica_id: str) -> str:
    """Channel to one API replica: frames."""
    return REPLICA_CHANNEL_PREFIX + replica_id
