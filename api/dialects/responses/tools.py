"""Schema of the tools of the Responses API and of the choice between them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.dialects.base.fields import ByKey, ByType, Items, Strict
from api.dialects.base.unsupported import Refused
from api.dialects.openai.tools import TextInput

ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]+$", min_length=1, max_length=128)]


class ClientTool(Strict):
    """What the tools of the client have in common."""

    name: ToolName
    description: str | None = None
    allowed_callers: Annotated[
        Items[Literal["direct", "programmatic"]] | None,
        Refused("Programs that call tools are not available.", neutral=(["direct"],)),
    ] = None
    async_: Annotated[bool | None, Field(alias="async")] = None
    defer_loading: Annotated[bool | None, Refused("Tools are always loaded.", neutral=(False,))] = None


class FunctionDefinition(ClientTool):
    type: Literal["function"]
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    output_schema: dict[str, Any] | None = None


class GrammarFormat(Strict):
    """Input format of a custom tool: text that matches a grammar."""

    type: Literal["grammar"]
    definition: str
    syntax: Literal["lark", "regex"]


class CustomDefinition(ClientTool):
    type: Literal["custom"]
    format: Annotated[TextInput | GrammarFormat, ByKey("type")] | None = None


class OtherTool(BaseModel):
    """A tool of any other type: it runs on OpenAI's servers, or only OpenAI's models know how to call it."""

    model_config = ConfigDict(strict=True, frozen=True)
    type: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


NamespacedTool = Annotated[FunctionDefinition | CustomDefinition | OtherTool, ByKey("type")]


class NamespaceTool(Strict):
    """A group of tools with a name, such as those of an MCP server of the client."""

    type: Literal["namespace"]
    name: ToolName
    description: str | None = None
    tools: Items[NamespacedTool]


AnyTool = Annotated[FunctionDefinition | CustomDefinition | NamespaceTool | OtherTool, ByKey("type")]


class ChosenTool(Strict):
    """The model must call this function or custom tool."""

    type: Literal["function", "custom"]
    name: str


class AllowedFunctions(Strict):
    """The model may call these tools only."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Items[dict[str, Any]]


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | Annotated[ChosenTool | AllowedFunctions, ByKey("type")],
    ByType("one of a string or object"),
]
