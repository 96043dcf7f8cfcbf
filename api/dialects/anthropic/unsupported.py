"""Features of Anthropic's reference that are refused, with the reasons."""

from collections.abc import Iterator, Sequence
from typing import Any

from api.dialects.anthropic.blocks import (
    ContentSource,
    DocumentBlock,
    FileSource,
    ImageBlock,
    PDFSource,
    SearchResultBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    URLSource,
)
from api.dialects.anthropic.errors import UNTHREADED
from api.dialects.anthropic.schema import (
    AnthropicTool,
    AssistantMessage,
    CountTokensRequest,
    MessagesRequest,
    SystemMessage,
    Tool,
)
from shared.protocol.errors import ProblemKind, refuse

_NO_CITATIONS = "Citations are not available."
_NO_SERVER_TOOLS = "Tools that run on Anthropic's servers, or that only its models know, are not available."

NOT_SERVED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "billing_policy": ("Nothing is billed.", ({"type": "billing_policy", "bill_to": "self"},)),
    "compaction": ("Ask for a summary in a message.", ()),
    "container": ("Code execution is not available.", ()),
    "diagnostics": ("Cache diagnostics are not available.", ()),
    "fallback_credit_token": ("Nothing is billed.", ()),
    "fallbacks": ("Requests run on the model that they name.", ("default", [])),
    "inference_geo": ("Requests run on this service's own workers.", ("global",)),
    "mcp_servers": ("The service does not connect to MCP servers.", ([],)),
    "speed": ("There is one inference speed.", ("standard",)),
    "thread": ("Conversations are not stored; send all messages.", ()),
    "user_profile_id": ("User profiles are not available.", ()),
    "workspace_id": ("Workspaces are not available.", ()),
}
"""Refused fields: the reason, and the values that mean the same as omitting the field."""

_KEEP_ALL = {"type": "clear_thinking_20251015", "keep": "all"}
"""The only edit of the context that changes nothing."""


def check_served(request: CountTokensRequest) -> None:
    """Raise :class:`RequestRefused` for the first feature that is not served."""
    for param, reason in _unsupported(request):
        code = UNTHREADED if param == "thread" else None
        raise refuse(ProblemKind.INVALID, f"Not supported: {reason}", param=param, code=code)


def _unsupported(request: CountTokensRequest) -> Iterator[tuple[str, str]]:
    for field, (reason, neutral) in NOT_SERVED.items():
        value = getattr(request, field, None)
        # By the reference, counts ignore compaction.
        ignored = field == "compaction" and not isinstance(request, MessagesRequest)
        if value is not None and value not in neutral and not ignored:
            yield field, reason
    if request.output_config is not None and request.output_config.task_budget is not None:
        yield "output_config.task_budget", "Models here know no budget."
    if getattr(request.thinking, "display", None) == "updates":
        yield "thinking.display", "Models here write no updates."
    edits = (request.context_management or {}).get("edits", [])
    if request.context_management and (
        request.context_management.keys() != {"edits"} or edits not in ([], [_KEEP_ALL])
    ):
        yield "context_management", "the service does not edit the context."
    for index, tool in enumerate(request.tools or ()):
        yield from _in_tool(f"tools[{index}]", tool)
    for at, message in enumerate(request.messages):
        if isinstance(message, SystemMessage) and message.output_config:
            yield f"messages[{at}].output_config", "The form of the output is that of the request."
        yield from _in_blocks(f"messages[{at}].content", message.content if isinstance(message.content, list) else ())
    if isinstance(request.messages[-1], AssistantMessage):
        last = f"messages[{len(request.messages) - 1}]"
        yield last, "assistant message prefill. The conversation must end with a user message."
    yield from _in_blocks("system", request.system if isinstance(request.system, list) else ())


def _in_tool(path: str, tool: Tool | AnthropicTool) -> Iterator[tuple[str, str]]:
    if isinstance(tool, AnthropicTool):
        yield f"{path}.type", _NO_SERVER_TOOLS
        return
    if tool.allowed_callers not in (None, ["direct"]):
        yield f"{path}.allowed_callers", "Code execution is not available."
    if tool.input_examples:
        yield f"{path}.input_examples", "Put examples into the tool's description."


def _in_block(path: str, block: object) -> Iterator[tuple[str, str]]:
    match block:
        case TextBlock() if block.citations:
            yield f"{path}.citations", _NO_CITATIONS
        case ImageBlock() if isinstance(block.source, FileSource):
            yield f"{path}.source", "Send the image as base64 or by URL."
        case ImageBlock() if block.transformations:
            yield f"{path}.transformations", "Send the image as the model should see it."
        case DocumentBlock() | SearchResultBlock() if block.citations is not None and block.citations.enabled:
            yield f"{path}.citations", _NO_CITATIONS
        case DocumentBlock(source=PDFSource() | URLSource() | FileSource()):
            yield f"{path}.source", "PDFs and files are not read; send the document's text."
        case DocumentBlock(source=ContentSource(content=list(parts))):
            yield from _in_blocks(f"{path}.source.content", parts)
        case SearchResultBlock(content=parts):
            yield from _in_blocks(f"{path}.content", parts)
        case ToolUseBlock() | ToolResultBlock() if block.toolset_name is not None:
            yield f"{path}.toolset_name", _NO_SERVER_TOOLS
        case ToolUseBlock() if block.caller not in (None, {"type": "direct"}):
            yield f"{path}.caller", "Code execution is not available."
        case ToolResultBlock() if isinstance(block.content, list):
            yield from _in_blocks(f"{path}.content", block.content)


def _in_blocks(path: str, blocks: Sequence[object]) -> Iterator[tuple[str, str]]:
    for place, block in enumerate(blocks):
        yield from _in_block(f"{path}[{place}]", block)
