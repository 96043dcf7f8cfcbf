"""Files and batches in the OpenAPI document."""

from typing import Any

from api.files.forms import SHORTEST_RETENTION
from api.files.record import LONGEST_RETENTION
from api.operations.openapi_parts import STORE_ERRORS, in_path, operation, query


def paths() -> dict[str, Any]:
    """Return the operations on files and batches, by path."""
    return {
        "/v1/batches": {
            "post": operation(
                "createBatch",
                "Create a batch from an uploaded file.",
                body="CreateBatchRequest",
                errors=(*STORE_ERRORS, 408, 413, 415, 429),
            ),
            "get": operation("listBatches", "List batches, newest first.", errors=STORE_ERRORS)
            | {"parameters": _BATCHES_PARAMETERS},
        },
        "/v1/batches/{batch}": {
            "get": operation("retrieveBatch", "Describe a batch.", errors=STORE_ERRORS),
            "parameters": [in_path("batch")],
        },
        "/v1/batches/{batch}/cancel": {
            "post": operation("cancelBatch", "Cancel a batch.", errors=STORE_ERRORS),
            "parameters": [in_path("batch")],
        },
        "/v1/files": {
            "post": _upload(),
            "get": operation("listFiles", "List files.", errors=STORE_ERRORS) | {"parameters": _FILES_PARAMETERS},
        },
        "/v1/files/{file}": {
            "get": operation("retrieveFile", "Describe a file.", errors=STORE_ERRORS),
            "delete": operation("deleteFile", "Delete a file.", errors=STORE_ERRORS),
            "parameters": [in_path("file")],
        },
        "/v1/files/{file}/content": {
            "get": operation(
                "downloadFile",
                "Read the content of a file.",
                ok={"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
                errors=STORE_ERRORS,
            ),
            "parameters": [in_path("file")],
        },
    }


def _upload() -> dict[str, Any]:
    uploading = operation("createFile", "Upload a file.", errors=(*STORE_ERRORS, 403, 408, 413, 415))
    uploading["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _UPLOAD}}}
    return uploading


_FILES_PARAMETERS = [
    query("after", {"type": "string"}),
    query("limit", {"type": "integer", "minimum": 1, "maximum": 10_000}),
    query("order", {"type": "string", "enum": ["asc", "desc"]}),
    query("purpose", {"type": "string"}),
]

_UPLOAD = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": ["batch"]},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {
            "type": "integer",
            "minimum": SHORTEST_RETENTION,
            "maximum": LONGEST_RETENTION,
        },
    },
}


_BATCHES_PARAMETERS = [
    query("after", {"type": "string"}),
    query("limit", {"type": "integer", "minimum": 1, "maximum": 100}),
]
