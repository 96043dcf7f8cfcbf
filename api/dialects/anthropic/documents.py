"""Documents, search results and tool references as text, because chat templates have none of them."""

from collections.abc import Iterator

from api.dialects.anthropic.blocks import (
    ContentSource,
    DocumentBlock,
    ImageBlock,
    PlainTextSource,
    ResultContent,
    SearchResultBlock,
    TextBlock,
    ToolReferenceBlock,
)


def parts_of(block: ResultContent) -> Iterator[TextBlock | ImageBlock]:
    """Yield the texts and images of a block. Those of other kinds are in tags that name the kind."""
    match block:
        case DocumentBlock():
            yield from _tagged("document", (("title", block.title), ("context", block.context)), _content(block))
        case SearchResultBlock():
            yield from _tagged("search_result", (("source", block.source), ("title", block.title)), block.content)
        case ToolReferenceBlock(tool_name=name):
            yield _text(f"<tool_reference>{name}</tool_reference>")
        case _:
            yield block


def _tagged(
    name: str, about: tuple[tuple[str, str | None], ...], content: list[TextBlock] | list[TextBlock | ImageBlock]
) -> Iterator[TextBlock | ImageBlock]:
    yield _text("\n".join([f"<{name}>", *(f"<{field}>{value}</{field}>" for field, value in about if value)]))
    yield from content
    yield _text(f"</{name}>")


def _content(document: DocumentBlock) -> list[TextBlock | ImageBlock]:
    match document.source:
        case PlainTextSource(data=text):
            return [_text(text)]
        case ContentSource(content=content):
            return [_text(content)] if isinstance(content, str) else content
        case _:
            raise AssertionError("PDFs and files are not served")


def _text(text: str) -> TextBlock:
    return TextBlock(type="text", text=text)
