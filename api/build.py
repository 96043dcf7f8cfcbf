"""Construction of an API replica from its settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from arq.connections import ArqRedis
from prometheus_client import CollectorRegistry

from api.batches.request import BatchMetrics, BatchServices
from api.batches.routes import BatchesHandler
from api.batches.store import MAX_UNFINISHED, BatchStore
from api.chat.admission import Admission
from api.chat.choices import MAX_RESPONSE_BYTES, response_room
from api.chat.exchange import ChatServices
from api.chat.queue_events import QueueEvents
from api.chat.queues import JobQueues
from api.chat.relay import Relay
from api.chat.routes import ChatHandler, RequestBodies, Responder, ResultHandler
from api.chat.settlement import Settlement
from api.chat.streams import OpenStreams
from api.chat.submission import Submission
from api.chat.usage import RequestMetrics
from api.fairness import FairThread
from api.files.folder import MIN_FREE_DISK, FilesFolder, storage_root
from api.files.routes import FilesHandler
from api.files.store import MAX_FILES, FileStore
from api.fleet.routes import FleetHandler
from api.fleet.watch import FleetWatch
from api.http.bodies import BodyParser
from api.http.guards import AllowedHosts, CrossOrigin, Guards, is_loopback
from api.http.refusals import Refusals
from api.http.routes import METRICS_PATHS
from api.keys import Keyring
from api.limits import Limiter
from api.media.download import Downloads
from api.media.loader import MediaLoader
from api.metrics.histogram import RecentTimes
from api.models.directory import Directory
from api.models.routes import ModelsHandler
from api.operations import openapi
from api.operations.metrics import Metrics
from api.operations.routes import OperationsHandler
from api.organization.routes import AuditHandler, KeysHandler, ProjectsHandler, StoredRecords, UsageHandler
from api.page.routes import PageHandler
from api.page.static_files import load as load_page
from api.responses.routes import ResponsesHandler, StoredCompletionHandler
from api.stored.store import ResponseStore
from shared.redis.store_check import StoreCheck
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks
from shared.tracing import NO_TRACING, Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a replica that :mod:`api.main` runs and :mod:`api.app` serves. Nothing else uses this class: all
    other parts get what they use through their constructors."""

    id: str
    settings: ApiSettings
    redis: ArqRedis
    tracing: Tracing
    directory: Directory
    relay: Relay
    keyring: Keyring
    store_check: StoreCheck
    queues: JobQueues
    job_tasks: BackgroundTasks
    """The tasks that cancel and charge jobs, and delete records of aborted requests."""
    background: BackgroundTasks
    first_token_times: RecentTimes
    chat: ChatServices
    batches: BatchServices
    metrics: Metrics
    refusals: Refusals
    cross_origin: CrossOrigin
    guards: Guards
    handlers: Sequence[object]
    """The handlers of all routes, one of each of :data:`HANDLERS`."""


HANDLERS = (
    ChatHandler,
    ResultHandler,
    ResponsesHandler,
    StoredCompletionHandler,
    FilesHandler,
    BatchesHandler,
    ModelsHandler,
    UsageHandler,
    KeysHandler,
    ProjectsHandler,
    AuditHandler,
    FleetHandler,
    OperationsHandler,
    PageHandler,
)


@cache
def openapi_document() -> bytes:
    return openapi.document(HANDLERS)


def build(redis: ArqRedis, settings: ApiSettings, replica_id: str, tracing: Tracing = NO_TRACING) -> Parts:
    """Construct the parts of a replica, leaves first; nothing runs yet.

    Raises :class:`KeyFileError` and :class:`FilesDirError`.
    """
    relay = Relay(redis, replica_id)
    directory = Directory(redis)
    keyring = Keyring(
        redis,
        plain=settings.api_keys,
        file=settings.keys_file,
        required=settings.require_keys,
        public_address="" if is_loopback(settings.host) else settings.host,
    )
    limiter = Limiter(redis, replica=replica_id, lease=settings.lease, longest=settings.request_timeout)
    queues = JobQueues(redis, prefix_routing=settings.prefix_routing, lease=settings.lease)
    job_tasks = BackgroundTasks()
    settlement = Settlement(limiter, queues, job_tasks)
    streams = OpenStreams(relay, queues, directory, job_tasks, settings)
    admission = Admission(directory, limiter, settlement, settings, keyring.team_of)
    submission = Submission(queues, directory, streams, settings, replica=replica_id)
    thread = FairThread()
    stored = ResponseStore(redis, job_tasks, thread, settings)
    first_token_times = RecentTimes()
    registry = CollectorRegistry()
    media = MediaLoader(Downloads(settings), settings, registry)
    request_metrics = RequestMetrics(registry, first_token_times, by_key=settings.metrics_by_key)
    metrics = Metrics(registry, request_metrics, directory, relay, streams, queues)
    chat = ChatServices(
        admission=admission,
        media=media,
        submission=submission,
        streams=streams,
        stored=stored,
        settlement=settlement,
        metrics=request_metrics,
        response_room=response_room(MAX_RESPONSE_BYTES),
        tracing=tracing,
        request_timeout=settings.request_timeout,
    )
    parser = BodyParser(settings, thread)
    records = StoredRecords(redis, keyring)
    bodies = RequestBodies(parser, directory, settings)
    queue_events = QueueEvents(queues, directory)
    responder = Responder(queue_events, thread, first_byte_after=settings.first_byte_after)
    background = BackgroundTasks()
    files = FileStore(
        redis,
        FilesFolder(redis, storage_root(settings.files_dir, MIN_FREE_DISK)),
        limit=MAX_FILES,
        max_bytes=settings.max_files_bytes,
    )
    batches = BatchServices(
        store=BatchStore(redis, limit=MAX_UNFINISHED),
        files=files,
        keyring=keyring,
        directory=directory,
        metrics=BatchMetrics(registry),
        parser=parser,
        chat=chat,
        responder=responder,
        settings=settings,
    )
    store_check = StoreCheck(redis)
    fleet = FleetWatch(redis, directory, batches.store, store_check, replica=replica_id, lease=settings.lease)
    cross_origin = CrossOrigin(settings.cors_origins.split(","))
    page = load_page(enabled=settings.web)
    return Parts(
        id=replica_id,
        settings=settings,
        redis=redis,
        tracing=tracing,
        directory=directory,
        relay=relay,
        keyring=keyring,
        store_check=store_check,
        queues=queues,
        job_tasks=job_tasks,
        background=background,
        first_token_times=first_token_times,
        chat=chat,
        batches=batches,
        metrics=metrics,
        refusals=Refusals(registry),
        cross_origin=cross_origin,
        guards=Guards(
            AllowedHosts(settings.allowed_hosts.split(","), settings.host),
            cross_origin,
            keyring,
            open_paths=[*page, *METRICS_PATHS] if settings.open_metrics else page,
        ),
        handlers=(
            ChatHandler(bodies, chat, responder),
            ResultHandler(chat, parser),
            ResponsesHandler(bodies, parser, chat, responder, stored, background, queue_events, settings),
            StoredCompletionHandler(stored, parser),
            FilesHandler(files, batches.store.reading, cross_origin, settings),
            BatchesHandler(batches.store, files, parser),
            ModelsHandler(directory, redis, parser, cross_origin),
            UsageHandler(redis, parser),
            KeysHandler(redis, records, parser),
            ProjectsHandler(redis, records, parser),
            AuditHandler(redis),
            FleetHandler(fleet, redis, streams, keyring, cross_origin, timeout=settings.request_timeout),
            OperationsHandler(redis, directory, relay, streams, metrics, openapi_document, replica=replica_id),
            PageHandler(page),
        ),
    )
