"""The tools that a request offers: in ``tools``, in items of its input, and in namespaces.

Models know no namespaces. They see the functions of one under its name and theirs: ``get`` of ``crm`` is ``crm__get``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from api.dialects.responses.items import AdditionalTools, Item
from api.dialects.responses.tools import AnyTool, CustomDefinition, FunctionDefinition, NamespaceTool, OtherTool

_SEPARATOR = "__"


@dataclass(frozen=True, slots=True)
class OfferedFunction:
    """A function or custom tool with its path in the request, and its name and description for the model."""

    path: str
    definition: FunctionDefinition | CustomDefinition
    name: str
    description: str | None
    namespace: str | None = None


def qualified_name(namespace: str | None, name: str) -> str:
    """Return the name of a function for the model."""
    if namespace is None:
        return name
    return namespace + ("" if namespace.endswith(_SEPARATOR) else _SEPARATOR) + name


def unqualified_name(namespace: str, name: str) -> str:
    """Return a function's name within its ``namespace``. ``name`` is its name for the model."""
    return name[len(qualified_name(namespace, "")) :]


def functions(tools: Sequence[AnyTool], items: Sequence[tuple[str, Item]]) -> Iterator[OfferedFunction]:
    """Yield the functions and custom tools. ``items`` are those of the input, with their paths."""
    for path, tool in _offered(tools, items):
        match tool:
            case FunctionDefinition() | CustomDefinition():
                yield OfferedFunction(path, tool, tool.name, tool.description)
            case NamespaceTool():
                # Functions have no place for a description that they share, so the first one begins with it.
                about = tool.description
                for index, one in enumerate(tool.tools):
                    if isinstance(one, FunctionDefinition | CustomDefinition):
                        description = "\n\n".join(filter(None, (about, one.description))) or None
                        name = qualified_name(tool.name, one.name)
                        yield OfferedFunction(f"{path}.tools[{index}]", one, name, description, tool.name)
                        about = None


def skipped_types(tools: Sequence[AnyTool], items: Sequence[tuple[str, Item]]) -> tuple[str, ...]:
    """Return the types of the tools that the model does not get."""
    return tuple(dict.fromkeys(_skipped(tool for _, tool in _offered(tools, items))))


def _skipped(tools: Iterator[AnyTool]) -> Iterator[str]:
    for tool in tools:
        if isinstance(tool, OtherTool):
            yield tool.type
        elif isinstance(tool, NamespaceTool):
            yield from (one.type for one in tool.tools if isinstance(one, OtherTool))


def _offered(tools: Sequence[AnyTool], items: Sequence[tuple[str, Item]]) -> Iterator[tuple[str, AnyTool]]:
    for index, tool in enumerate(tools):
        yield f"tools[{index}]", tool
    for path, item in items:
        if isinstance(item, AdditionalTools):
            for index, tool in enumerate(item.tools):
                yield f"{path}.tools[{index}]", tool
