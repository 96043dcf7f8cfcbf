"""How much memory models take: estimated from their files, then measured at their first load and remembered."""

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from shared.protocol.registry import IMAGE, TEXT
from shared.runtime.settings import EngineSettings, Settings, WorkerSettings
from worker.engine.backends import BACKENDS
from worker.model.cache import user_cache, write_whole
from worker.model.devices import device_kind
from worker.model.files import PROCESSES, sees_images
from worker.model.header import loaded_bytes
from worker.model.local import describe, path
from worker.model.source import ModelError
from worker.node.catalogue import CatalogueEntry
from worker.node.devices import HOST, Memory

DEFAULT_CACHE_GB = 1
"""KV cache of each model unless it is set: with ``auto``, the first model would take that of all."""
_GB = 2**30
_UNKNOWN = 2 * _GB
"""Bytes of a model whose files are not there yet."""
_SIMULATED = 200 * 2**20


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What the last load of a model has shown. ``memory`` is in bytes, without the KV cache's reserve."""

    memory: int
    load_seconds: float
    context_length: int = 0
    fingerprint: str = ""
    modalities: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    temperature: float | None = None
    top_p: float | None = None


def expected(source: str, *, max_context: int) -> Measurement | None:
    """Return what the files of a model say of it before its first load; ``None`` if they are not here.

    ``max_context`` is in tokens, as in :func:`~worker.model.local.describe`.
    """
    try:
        model = describe(source, max_context=max_context)
    except ModelError:
        return None
    return Measurement(
        memory=0,
        load_seconds=0.0,
        context_length=model.context_length,
        modalities=(TEXT, IMAGE) if sees_images(model.path) else (TEXT,),
        kinds=(model.work,),
        temperature=model.sampling.temperature,
        top_p=model.sampling.top_p,
    )


class Measurements:
    """Measurements by the settings of a model and its engine, kept in a file for the next start of the node."""

    def __init__(self, file: Path | None = None) -> None:
        """``file`` is by default in the user's cache folder."""
        self._file = file
        with suppress(RuntimeError):  # a user without a home directory: nothing is remembered
            self._file = file or user_cache() / "node.json"
        self._known = self._read()

    def get(self, settings: EngineSettings) -> Measurement | None:
        """Return the measurement of a model with these ``settings``, or ``None`` before its first load with them."""
        return self._known.get(_digest(settings))

    def put(self, settings: EngineSettings, measurement: Measurement) -> None:
        """Remember a measurement. One that can't be written is lost with the process."""
        self._known[_digest(settings)] = measurement
        if self._file is not None:
            write_whole(self._file, msgspec.json.encode(self._known))

    def _read(self) -> dict[str, Measurement]:
        if self._file is None:
            return {}
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Measurement])
        except (OSError, msgspec.DecodeError):
            return {}


def _digest(settings: EngineSettings) -> str:
    fields = EngineSettings.model_fields.keys() - Settings.model_fields.keys()
    values = {name: getattr(settings, name) for name in fields}
    return sha256(msgspec.json.encode(values, order="sorted")).hexdigest()[:16]


def needed(entry: CatalogueEntry, measured: Measurement | None, settings: WorkerSettings, place: str) -> Memory:
    """Return what a worker of ``entry`` with ``settings`` takes with a full KV cache.

    ``place`` is where it has its weights, a draft model's too, and its KV cache: the host, or a discrete GPU.
    Measurements, which are of processes, do not contain weights on a GPU, an integrated one included.
    """
    if BACKENDS[settings.engine].has_model:
        processes = measured.memory if measured else PROCESSES
        own = 0 if measured and device_kind(settings.device) != "GPU" else _weights(entry.source, settings.draft_model)
        own += (settings.cache_size if isinstance(settings.cache_size, int) else DEFAULT_CACHE_GB) * _GB
    else:
        processes, own = measured.memory if measured else _SIMULATED, 0
    if place == HOST:
        return {HOST: entry.memory or processes + own}
    return {HOST: processes, place: entry.memory or own}


def _weights(source: str, draft: str) -> int:
    try:
        return loaded_bytes(path(source)) + (loaded_bytes(Path(draft)) if draft else 0)
    except (ModelError, OSError):
        return _UNKNOWN


def resident_bytes(leader: int) -> int:
    """Return the proportional set size in bytes of the process group that ``leader`` leads; 0 where it is unknown."""
    return sum(_pss(pid) for pid in _group(leader))


def _group(leader: int) -> Iterable[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(entry.name)) == leader:
                yield int(entry.name)
        except OSError:
            continue  # it has ended


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
