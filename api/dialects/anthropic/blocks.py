"""Schema of the content blocks in Anthropic's Messages requests."""

from typing import Annotated, Any, Literal

from api.dialects.base.fields import ByKey, History, Items, NonEmptyText, StringOrItems
from api.dialects.base.unsupported import Refused

NO_SERVER_TOOLS = "Tools that run on Anthropic's servers, or that only its models know, are not available."
_NO_CITATIONS = "Citations are not available."
_NO_FILES = "Files are not read; send an image as base64 or by URL, and a document as text."
_NO_PDFS = "PDFs are not read; send the document's text."


class CacheControl(History):
    """A hint for the end of a cached prefix. Prefixes are always cached."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None
    scope: str | None = None
    """Who shares the prefix: here, all keys. A beta that the types of the SDK lack and Claude Code uses."""


class TextBlock(History):
    type: Literal["text"]
    text: str
    cache_control: CacheControl | None = None
    citations: Annotated[Items[dict[str, Any]] | None, Refused(_NO_CITATIONS, neutral=([],))] = None


class Base64Source(History):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: NonEmptyText


class URLSource(History):
    type: Literal["url"]
    url: NonEmptyText


class FileSource(History):
    type: Annotated[Literal["file"], Refused(_NO_FILES)]
    file_id: str


class ImageBlock(History):
    type: Literal["image"]
    source: Annotated[Base64Source | URLSource | FileSource, ByKey("type")]
    cache_control: CacheControl | None = None
    transformations: Annotated[
        dict[str, Any] | None, Refused("Send the image as the model should see it.", neutral=({},))
    ] = None


class ThinkingBlock(History):
    """Earlier reasoning of the assistant."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class RedactedThinkingBlock(History):
    """Earlier reasoning that only Anthropic's service can read."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(History):
    type: Literal["tool_use"]
    id: NonEmptyText
    name: NonEmptyText
    input: dict[str, Any]
    cache_control: CacheControl | None = None
    caller: Annotated[
        dict[str, Any] | None, Refused("Code execution is not available.", neutral=({"type": "direct"},))
    ] = None
    toolset_name: Annotated[str | None, Refused(NO_SERVER_TOOLS)] = None


class CitationsConfig(History):
    enabled: Annotated[bool | None, Refused(_NO_CITATIONS, neutral=(False,))] = None


class PlainTextSource(History):
    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: str


class ContentSource(History):
    type: Literal["content"]
    content: StringOrItems[Annotated[TextBlock | ImageBlock, ByKey("type")]]


class PDFSource(History):
    type: Annotated[Literal["base64"], Refused(_NO_PDFS)]
    media_type: Literal["application/pdf"]
    data: str


class DocumentURLSource(URLSource):
    type: Annotated[Literal["url"], Refused(_NO_PDFS)]


class DocumentBlock(History):
    type: Literal["document"]
    source: Annotated[PlainTextSource | ContentSource | PDFSource | DocumentURLSource | FileSource, ByKey("type")]
    cache_control: CacheControl | None = None
    citations: CitationsConfig | None = None
    context: str | None = None
    title: str | None = None


class SearchResultBlock(History):
    """A result of the client's own search."""

    type: Literal["search_result"]
    source: str
    title: str
    content: Items[TextBlock]
    cache_control: CacheControl | None = None
    citations: CitationsConfig | None = None


class ToolReferenceBlock(History):
    """A tool that the client's search has found. It loads a deferred tool."""

    type: Literal["tool_reference"]
    tool_name: NonEmptyText
    cache_control: CacheControl | None = None


ResultContent = Annotated[
    TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock, ByKey("type")
]


class ToolResultBlock(History):
    type: Literal["tool_result"]
    tool_use_id: NonEmptyText
    content: StringOrItems[ResultContent] = ""
    is_error: bool | None = None
    cache_control: CacheControl | None = None
    toolset_name: Annotated[str | None, Refused(NO_SERVER_TOOLS)] = None


UserBlock = Annotated[TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolResultBlock, ByKey("type")]
AssistantBlock = Annotated[TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock, ByKey("type")]
