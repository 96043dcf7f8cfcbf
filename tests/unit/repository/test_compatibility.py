"""docs/compatibility.md matches the code, is complete."""

from typing import Any

import pytest
from openai.types import (
    Batch,
    Completion,
    FileObject,
    batch_create_params,
    completion_create_params,
    file_create_params,
)
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import Response, response_create_params
from typing_extensions import get_type_hints

from api.dialects.azure.parse import PASSED
from api.dialects.azure.parse import SERVED as AZURE_FIELDS
from api.dialects.base.unsupported import supported_fields
from api.dialects.openai.extended import ExtendedChatRequest
from tests.compatibility.interfaces import (
    AZURE,
    BATCHES,
    CHAT,
    COMPLETIONS,
    FILES,
    INTERFACES,
    RESPONSES,
)
from tests.compatibility.page import PAGE, page
from tests.compatibility.paths import of_type
from tests.compatibility.proof import missing_fields, refusal
from tests.compatibility.rows import Interface, Request
from tests.compatibility.samples import sent

each_interface = pytest.mark.parametrize("interface", INTERFACES, ids=lambda interface: interface.route)


def requested(interface: Interface) -> set[str]:
    return {path for row in interface.requests for path in row.paths}


def undescribed(interface: Interface, kind: Any) -> set[str]:
    """The paths in a type of an SDK that the table does not have, except inside of a field that is refused."""
    refused = tuple(f"{path}." for row in interface.requests if not row.how for path in row.paths)
    return {path for path in set(of_type(kind)) - requested(interface) if not path.startswith(refused)}


def answered(interface: Interface) -> set[str]:
    return {path for row in interface.answers for path in row.paths}


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run 'make docs'"


def name_of(row: Request) -> str:
    return f"{row.paths[-1]} {row.when}".rstrip()


@each_interface
def test_a_rows_request_has_its_fields(interface: Interface) -> None:
    missing = {name_of(row): missing_fields(interface, row) for row in interface.requests}
    assert {name: fields for name, fields in missing.items() if fields} == {}


@each_interface
def test_what_is_refused_names_its_field(interface: Interface) -> None:
    wrong = {}
    for row in interface.requests:
        refused = refusal(interface, row)
        named = refused is not None and 400 <= refused.status < 500 and refused.field in row.paths
        if refused is not None if row.how else not named:
            wrong[name_of(row)] = refused
    assert wrong == {}


@each_interface
def test_every_field_of_an_answer_is_in_the_table(interface: Interface) -> None:
    assert sent(interface).keys() <= answered(interface)


def test_every_field_that_openais_sdk_sends_is_in_the_table() -> None:
    assert undescribed(CHAT, chat_create_params.CompletionCreateParamsStreaming) == set()
    assert undescribed(COMPLETIONS, completion_create_params.CompletionCreateParamsStreaming) == set()


def test_every_field_of_responses_that_openais_sdk_has_is_in_the_table() -> None:
    # The fields inside are those of all hosted tools.
    assert get_type_hints(response_create_params.ResponseCreateParamsStreaming).keys() <= requested(RESPONSES)
    assert Response.model_fields.keys() <= answered(RESPONSES)


def test_every_field_that_openais_sdk_reads_is_in_the_table() -> None:
    assert set(of_type(ChatCompletion)) | set(of_type(ChatCompletionChunk)) <= answered(CHAT)
    assert set(of_type(Completion)) <= answered(COMPLETIONS)


def test_every_field_of_files_and_batches_is_in_the_table() -> None:
    assert set(of_type(file_create_params.FileCreateParams)) <= requested(FILES)
    assert set(of_type(batch_create_params.BatchCreateParams)) <= requested(BATCHES)
    assert set(of_type(FileObject)) <= answered(FILES)
    assert set(of_type(Batch)) <= answered(BATCHES)


def test_every_field_of_the_other_interfaces_is_in_the_table() -> None:
    assert requested(AZURE) >= AZURE_FIELDS | (PASSED & supported_fields(ExtendedChatRequest))
