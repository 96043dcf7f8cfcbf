"""The catalogue: a TOML file with the models that nodes load by demand."""

import logging
import re
import tomllib
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
from pydantic import ByteSize, ConfigDict, Field, ValidationError, field_validator

from shared.parsers.formats import PARSERS
from shared.runtime.settings import (
    REMOVED,
    EngineSettings,
    MemorySize,
    Settings,
    WorkerSettings,
    joined_reasons,
)
from worker.engine.backends import BACKENDS
from worker.model.request_defaults import RequestDefaults
from worker.model.source import ModelError, check_name, check_parser, parse_source

logger = logging.getLogger(__name__)

ALWAYS = float("inf")
"""Idle time of a model that is never unloaded for being idle."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_OF_WORKERS = frozenset(EngineSettings.model_fields) - frozenset(Settings.model_fields) - {"model"} | {
    "chat_template",
    "self_test",
    "tool_parser",
    "reasoning_parser",
    "image_pixels",
    "batch_reserve",
}
"""Settings of a worker that an entry may set for its model."""


class CatalogueError(Exception):
    """A catalogue is invalid. The message names the line and what to do."""


def _duration(text: object) -> object:
    if not isinstance(text, str) or (text != "always" and _DURATION.fullmatch(text) is None):
        raise ValueError("must be 'always', or a time such as '15m', '90s' or '0', in quotes")
    return text


class _Entry(RequestDefaults):
    model_config = ConfigDict(extra="allow", strict=True)

    source: Annotated[str, Field(min_length=1)]
    aliases: list[str] = Field(default_factory=list)
    keep: str = "15m"
    replicas: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=1)]] | None = None
    memory: MemorySize = ByteSize(0)
    priority: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    _keep_is_a_duration = field_validator("keep", mode="before")(_duration)

    @field_validator("replicas", mode="before")
    @classmethod
    def _pair(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One model of the catalogue. ``settings`` are those that its workers have instead of the node's."""

    name: str
    source: str
    aliases: tuple[str, ...] = ()
    keep: str = "15m"
    """How long the model stays loaded without requests, as written: ``always``, ``15m``, ``0``."""
    least: int = 0
    """Number of workers that the fleet has of it even without requests."""
    most: int = 1
    priority: float = 1.0
    """Factor of the model's need when models compete for memory."""
    memory: int = 0
    """Bytes that the model takes as the operator says; 0 if it is estimated and measured."""
    settings: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    """Fields of :class:`~worker.model.request_defaults.RequestDefaults`."""

    @property
    def keep_seconds(self) -> float:
        """``keep`` in seconds; :data:`ALWAYS` for ``always``."""
        if self.keep == "always":
            return ALWAYS
        amount, unit = _DURATION.fullmatch(self.keep).groups()  # type: ignore[union-attr]
        return float(amount) * _UNITS[unit]

    @property
    def digest(self) -> str:
        """Digest of the entry. Entries with the same one are served alike."""
        return sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:16]


def read_catalogue(path: Path, defaults: WorkerSettings) -> tuple[CatalogueEntry, ...]:
    """Return the entries of the catalogue at ``path``. ``defaults`` are the settings of a worker without an entry.

    Raises :class:`CatalogueError`.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogueError(f"The catalogue {path} can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"The catalogue {path} is not TOML: {error}.") from None
    tables = document.pop("models", None)
    if document:
        unknown = next(iter(document))
        lines = enumerate(text.splitlines(), 1)
        line = next((number for number, line in lines if line.lstrip("[ ").startswith(unknown)), 1)
        reason = f"'{unknown}' is unknown; a catalogue has only [models.NAME] tables"
        raise CatalogueError(f"The catalogue {path}, line {line}: {reason}.")
    if not isinstance(tables, dict) or not tables:
        raise CatalogueError(f'The catalogue {path} has no model. Add one: [models.chat] with source = "default".')
    entries = []
    owners: dict[str, str] = {}
    for name, table in tables.items():
        entry = _entry(path, text, name, table, defaults)
        for own in (entry.name, *entry.aliases):
            if (owner := owners.setdefault(own, name)) != name:
                raise _error(path, text, name, "aliases", f"has the name '{own}', which model '{owner}' has too")
        entries.append(entry)
    return tuple(entries)


def _entry(path: Path, text: str, name: str, table: object, defaults: WorkerSettings) -> CatalogueEntry:
    if not isinstance(table, dict):
        raise _error(path, text, name, "", "must be a table")
    try:
        entry = _Entry(**table)
        settings = entry.model_extra or {}
        for gone in settings.keys() & REMOVED.keys():
            del settings[gone]
            logger.warning("%s: models.%s.%s has no effect any more: %s", path, name, gone, REMOVED[gone])
        if unknown := next(iter(settings.keys() - _OF_WORKERS), None):
            near = get_close_matches(unknown, (*_Entry.model_fields, *sorted(_OF_WORKERS)), n=1, cutoff=0.8)
            raise _error(path, text, name, unknown, f"is unknown (did you mean '{near[0]}'?)" if near else "is unknown")
        worker = WorkerSettings(**(defaults.model_dump() | settings))
    except ValidationError as error:
        first = error.errors()[0]["loc"][:1]
        reason = joined_reasons(found for found in error.errors() if found["loc"][:1] == first)
        raise _error(path, text, name, str(*first), reason) from None
    field = ""
    try:
        check_name(name)
        field = "aliases"
        for alias in entry.aliases:
            check_name(alias)
        for kind in PARSERS:
            field = kind
            check_parser(kind, getattr(worker, kind))
        field = "source"
        if BACKENDS[worker.engine].has_model:
            parse_source(f"{name}={entry.source}")
    except ModelError as error:
        raise _error(path, text, name, field, str(error)) from None
    least, most = entry.replicas or (1 if entry.keep == "always" else 0, 1)
    if most < max(least, 1):
        raise _error(path, text, name, "replicas", "must be [LEAST, MOST] with LEAST at most MOST")
    return CatalogueEntry(
        name=name,
        source=entry.source,
        aliases=tuple(entry.aliases),
        keep=entry.keep,
        least=least,
        most=most,
        memory=int(entry.memory),
        priority=entry.priority,
        settings=settings,
        defaults=entry.given,
    )


def _error(path: Path, text: str, name: str, field: str, reason: str) -> CatalogueError:
    line = _line(text, name, field)
    where = f"models.{name}.{field}" if field else f"models.{name}"
    return CatalogueError(f"The catalogue {path}, line {line}: {where}: {reason.rstrip('.')}.")


def _line(text: str, name: str, field: str) -> int:
    """Return the number of the line with ``field`` in the table of model ``name``, or with the table's head."""
    head = 1
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("["):
            inside = re.fullmatch(rf"\[\s*models\s*\.\s*[\"']?{re.escape(name)}[\"']?\s*\].*", line.strip()) is not None
            head = number if inside else head
        elif inside and field and re.match(rf"\s*{re.escape(field)}\s*=", line):
            return number
    return head
