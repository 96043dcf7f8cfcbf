"""What the SDKs send, in bodies, queries and forms, against this service's schemas: a new field of an SDK is noticed.

A field is served, or the schema refuses it with a reason. What is listed here is refused
while the body is validated, with the name of the field and the values that it may have.
"""

import re
from pkgutil import resolve_name

import pytest
from pydantic import BaseModel

from api.batches.forms import BatchesQuery, CreateBatchRequest
from api.dialects.anthropic.models import ModelsQuery
from api.dialects.anthropic.schema import CountTokensRequest, MessagesRequest
from api.dialects.openai.completions_schema import CompletionRequest
from api.dialects.openai.schema import ChatCompletionRequest
from api.dialects.responses.parse import InputTokensRequest
from api.dialects.responses.schema import ResponsesRequest
from api.files.forms import FilesQuery, UploadForm
from api.responses.completion_forms import StoredQuery, UpdateRequest
from api.responses.forms import ItemsQuery, RetrieveQuery
from tests.support.param_types import unknown

_CONTENT = ".messages[]<role>.content[]"
_RESULT = f"{_CONTENT}<tool_result>.content[]"
_BLOCKS = {
    # Each is refused under one role and served under the other.
    f"{_CONTENT}<{kind}>"
    for kind in ("document", "image", "redacted_thinking", "search_result", "thinking", "tool_result", "tool_use")
} | {
    f"{_CONTENT}<{kind}>"
    for kind in (
        "bash_code_execution_tool_result",
        "code_execution_tool_result",
        "container_upload",
        "server_tool_use",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "web_fetch_tool_result",
        "web_search_tool_result",
    )
}
_RESULTS = {f"{_RESULT}<browser_state>"}
MESSAGES = _BLOCKS | _RESULTS | {".thinking<between_tools>"}
BETA = (
    MESSAGES
    | {
        f"{_CONTENT}<{kind}>"
        for kind in (
            "advisor_tool_result",
            "compaction",
            "fallback",
            "mcp_tool_listing",
            "mcp_tool_result",
            "mcp_tool_use",
            "tool_addition",
            "tool_removal",
        )
    }
    # A header.
    | {".betas"}
)
ITEMS = {
    f".input[]<{kind}>"
    for kind in (
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "compaction_trigger",
        "computer_call",
        "computer_call_output",
        "configuration_update",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    )
}
CHOICES = {
    f".tool_choice<{kind}>"
    for kind in (
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use",
        "computer_use_preview",
        "file_search",
        "image_generation",
        "mcp",
        "programmatic_tool_calling",
        "shell",
        "web_search_preview",
        "web_search_preview_2025_03_11",
    )
}
HOSTED = ITEMS | CHOICES


@pytest.mark.parametrize(
    ("params", "schema", "refused"),
    [
        ("anthropic.types.message_create_params:MessageCreateParamsStreaming", MessagesRequest, MESSAGES),
        ("anthropic.types.message_count_tokens_params:MessageCountTokensParams", CountTokensRequest, MESSAGES),
        ("anthropic.types.beta.message_create_params:MessageCreateParamsStreaming", MessagesRequest, BETA),
        (
            "anthropic.types.beta.message_count_tokens_params:MessageCountTokensParams",
            CountTokensRequest,
            BETA,
        ),
        ("openai.types.chat.completion_create_params:CompletionCreateParamsStreaming", ChatCompletionRequest, set()),
        ("openai.types.completion_create_params:CompletionCreateParamsStreaming", CompletionRequest, set()),
        ("openai.types.batch_create_params:BatchCreateParams", CreateBatchRequest, set()),
        (
            "openai.types.responses.response_create_params:ResponseCreateParamsStreaming",
            ResponsesRequest,
            ITEMS | CHOICES,
        ),
        ("openai.types.responses.input_token_count_params:InputTokenCountParams", InputTokensRequest, HOSTED),
        ("openai.types.responses.response_retrieve_params:ResponseRetrieveParamsStreaming", RetrieveQuery, set()),
        ("openai.types.responses.input_item_list_params:InputItemListParams", ItemsQuery, set()),
        ("openai.types.chat.completion_list_params:CompletionListParams", StoredQuery, set()),
        ("openai.types.chat.completions.message_list_params:MessageListParams", StoredQuery, set()),
        ("openai.types.chat.completion_update_params:CompletionUpdateParams", UpdateRequest, set()),
        ("openai.types.file_create_params:FileCreateParams", UploadForm, {".file"}),
        ("openai.types.file_list_params:FileListParams", FilesQuery, set()),
        ("openai.types.batch_list_params:BatchListParams", BatchesQuery, set()),
        ("anthropic.types.model_list_params:ModelListParams", ModelsQuery, {".workspace_id"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_field_of_the_sdk_is_known(params: str, schema: type[BaseModel], refused: set[str]) -> None:
    """``params`` are resolved here, because importing an SDK at module level costs every process of pytest-xdist."""
    paths = unknown(resolve_name(params), schema)
    found = {re.sub(r"^(\.messages\[\])<\w+>", r"\1<role>", path) for path in paths}
    assert found == refused
