"""Files: the form and the queries of their routes, and their JSON."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from pydantic import Field

from api.dialects.base.fields import Strict
from api.dialects.base.lists import render_list
from api.dialects.base.query import validate_query
from api.dialects.base.validation import missing, unknown_parameter, validate, wrong_value
from api.files.record import LONGEST_RETENTION, FileRecord
from api.files.upload import Upload
from shared.protocol.errors import ProblemKind, RequestRefused, refuse

SHORTEST_RETENTION = 3600
Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
"""The purposes that OpenAI's service accepts."""
_MAX_NAME = 255


class ExpiresAfter(Strict):
    anchor: Literal["created_at"]
    seconds: Annotated[int, Field(ge=SHORTEST_RETENTION, le=LONGEST_RETENTION)]


class UploadForm(Strict):
    """The fields of an upload besides the file."""

    # The others are known, but refused.
    purpose: Annotated[Purpose, Field(json_schema_extra={"enum": ["batch"]})]
    expires_after: ExpiresAfter | None = None


class FilesQuery(Strict):
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    purpose: str | None = None


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A received file. ``retention`` is in seconds."""

    filename: str
    retention: int


def parse_upload(upload: Upload) -> NewFile:
    """Check the form of an upload. Raises :class:`RequestRefused` for invalid fields."""
    value: dict[str, Any] = {}
    for name, text in upload.fields.items():
        if name == "purpose":
            value[name] = text
        elif found := re.fullmatch(r"expires_after\[(\w+)\]", name):
            value.setdefault("expires_after", {})[found[1]] = text
        else:
            raise unknown_parameter(name[:64])
    form = validate(UploadForm, value, strict=False)
    if form.purpose != "batch":
        raise refuse(
            ProblemKind.INVALID,
            f"Unsupported value: 'purpose' does not support '{form.purpose}' on this server. "
            "Supported values are: 'batch'.",
            param="purpose",
            code="unsupported_value",
        )
    if upload.filename is None:
        raise missing("file")
    retention = form.expires_after.seconds if form.expires_after is not None else LONGEST_RETENTION
    return NewFile(filename=re.split(r"[/\\]", upload.filename)[-1][:_MAX_NAME] or "upload", retention=retention)


def parse_query(query: Mapping[str, str]) -> FilesQuery:
    """Parse the query of a list. Raises :class:`RequestRefused` for invalid values."""
    wanted, known = validate_query(FilesQuery, query), (*get_args(Purpose), "batch_output")
    if wanted.purpose is not None and wanted.purpose not in known:
        raise wrong_value("purpose", wanted.purpose, known)
    return wanted


def render_file(record: FileRecord) -> bytes:
    return msgspec.json.encode(_object(record))


def render_files(files: Sequence[FileRecord], *, more: bool) -> bytes:
    return render_list([_object(record) for record in files], [record.id for record in files], more=more)


def not_found(file_id: str, param: str = "id") -> RequestRefused:
    return refuse(ProblemKind.NOT_FOUND, f"No such File object: {file_id[:64]}", param=param)


def _object(record: FileRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "object": "file",
        "bytes": record.size,
        "created_at": record.created,
        "expires_at": record.expires,
        "filename": record.filename,
        "purpose": record.purpose,
        "status": "processed",
        "status_details": None,
    }
