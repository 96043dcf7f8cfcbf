"""Schema of the tools of the Responses API and of the choice between them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StringConstraints, Tag

from api.dialects.base.fields import OBJECT, STRING, WRONG_BRANCH, Items, Strict, by_key, by_type, tag
from api.dialects.base.unsupported import Refused

ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]+$", min_length=1, max_length=128)]


class FunctionDefinition(Strict):
    """A function of the client."""

    type: Literal["function"]
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    allowed_callers: Annotated[
        Items[Literal["direct", "programmatic"]] | None,
        Refused("Programs that call tools are not available.", neutral=(["direct"],)),
    ] = None
    async_: Annotated[bool | None, Field(alias="async")] = None
    defer_loading: Annotated[bool | None, Refused("Tools are always loaded.", neutral=(False,))] = None
    output_schema: dict[str, Any] | None = None


class OtherTool(BaseModel):
    """A tool of any other type: it runs on OpenAI's servers, or only OpenAI's models know how to call it."""

    model_config = ConfigDict(strict=True, frozen=True)
    type: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


def _kind(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if not isinstance(kind, str):
        return None
    return tag("function" if kind == "function" else "other")


def _any_kind(value: Any) -> str | None:
    is_namespace = isinstance(value, Mapping) and value.get("type") == "namespace"
    return tag("namespace") if is_namespace else _kind(value)


NamespacedTool = Annotated[
    Annotated[FunctionDefinition, Tag(tag("function"))] | Annotated[OtherTool, Tag(tag("other"))],
    Discriminator(_kind, custom_error_type=WRONG_BRANCH, custom_error_message="type function"),
]


class NamespaceTool(Strict):
    """A group of tools with a name, such as those of an MCP server of the client."""

    type: Literal["namespace"]
    name: ToolName
    description: str | None = None
    tools: Items[NamespacedTool]


AnyTool = Annotated[
    Annotated[FunctionDefinition, Tag(tag("function"))]
    | Annotated[NamespaceTool, Tag(tag("namespace"))]
    | Annotated[OtherTool, Tag(tag("other"))],
    Discriminator(_any_kind, custom_error_type=WRONG_BRANCH, custom_error_message="type function namespace"),
]


class ChosenFunction(Strict):
    """The model must call this function."""

    type: Literal["function"]
    name: str


class AllowedFunctions(Strict):
    """The model may call these tools only."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Items[dict[str, Any]]


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag(STRING)]
    | Annotated[
        Annotated[
            Annotated[ChosenFunction, Tag(tag("function"))] | Annotated[AllowedFunctions, Tag(tag("allowed_tools"))],
            by_key("type", "function", "allowed_tools"),
        ],
        Tag(OBJECT),
    ],
    by_type("one of a string or object", {str: STRING, dict: OBJECT}),
]
