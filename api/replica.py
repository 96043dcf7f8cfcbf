"""An API replica: the components that its routes and background tasks use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from arq.connections import ArqRedis
from quart import Quart, current_app

from api.base.fair_thread import FairThread
from api.base.histogram import RecentTimes
from api.batches.store import BatchStore
from api.chat.admission import Admission
from api.chat.cancellation import JobCancellation
from api.chat.charges import TenantCharges
from api.chat.draining import Draining
from api.chat.exchange import ChatServices
from api.chat.key_watch import KeyWatch
from api.chat.reaper import Reaper
from api.chat.relay import Relay
from api.chat.responder import Responder
from api.chat.streams import OpenStreams
from api.chat.submission import Submission
from api.chat.worker_watch import WorkerWatch
from api.files import FileStore
from api.fleet.watch import FleetWatch
from api.http.body_parser import BodyParser
from api.http.cross_origin import CrossOrigin
from api.http.guards import Guards
from api.keys import Keyring
from api.media.loader import MediaLoader
from api.models.directory import Directory
from api.models.lookup import ModelLookup
from api.operations.metrics import Metrics
from api.page.static_files import PageFile
from api.stored.store import ResponseStore
from shared.runtime.settings import ApiSettings
from shared.runtime.tasks import BackgroundTasks
from shared.tracing import Tracing

EXTENSION = "vinoqueue"


@dataclass(frozen=True, slots=True)
class Replica:
    """The components of one API replica, constructed once per process (see :mod:`api.build`)."""

    id: str
    settings: ApiSettings
    redis: ArqRedis
    guards: Guards
    relay: Relay
    directory: Directory
    models: ModelLookup
    keyring: Keyring
    admission: Admission
    draining: Draining
    thread: FairThread
    """Parses large bodies and encodes large answers."""
    body_parser: BodyParser
    media: MediaLoader
    streams: OpenStreams
    cancellation: JobCancellation
    submission: Submission
    charges: TenantCharges
    job_tasks: BackgroundTasks
    """The tasks that cancel and charge jobs, and delete records of aborted requests."""
    reaper: Reaper
    key_watch: KeyWatch
    worker_watch: WorkerWatch
    stored: ResponseStore
    background: BackgroundTasks
    """The tasks of background responses."""
    files: FileStore
    batches: BatchStore
    metrics: Metrics
    first_token_times: RecentTimes
    fleet: FleetWatch
    cross_origin: CrossOrigin
    tracing: Tracing
    chat: ChatServices
    responder: Responder
    handlers: Sequence[object]
    """The handlers of the routes."""
    page: Mapping[str, PageFile]
    """The web page's files by URL path."""


def current_replica() -> Replica:
    """Return the replica that serves the current request."""
    return cast(Replica, current_app.extensions[EXTENSION])


def replica_of(app: Quart) -> Replica:
    """Return the replica that ``app`` serves."""
    return cast(Replica, app.extensions[EXTENSION])
