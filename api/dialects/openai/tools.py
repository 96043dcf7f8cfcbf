"""Schemas of tools, tool choice, and the deprecated functions."""

from typing import Annotated, Any, Literal

from pydantic import Field

from api.dialects.base.fields import ByKey, ByType, Identifier, Items, Strict
from api.dialects.base.unsupported import Ignored

Schema = dict[str, Any] | None
"""A JSON Schema. It is validated when its grammar is compiled."""


CacheControl = Annotated[dict[str, Any] | None, Ignored()]
"""Anthropic's hint for the end of a cached prefix. Prefixes are always cached."""


class Function(Strict):
    """An entry of the deprecated ``functions``."""

    name: Identifier
    description: str | None = None
    parameters: Schema = None
    cache_control: CacheControl = None


class StrictFunction(Function):
    strict: bool | None = None


class FunctionTool(Strict):
    """A tool whose arguments are described by a schema."""

    type: Literal["function"]
    function: StrictFunction
    cache_control: CacheControl = None


class Grammar(Strict):
    definition: str
    syntax: Literal["lark", "regex"]


class TextInput(Strict):
    """Input format of a custom tool: free text."""

    type: Literal["text"]


class GrammarInput(Strict):
    """Input format of a custom tool: text that matches a grammar."""

    type: Literal["grammar"]
    grammar: Grammar


CustomInput = Annotated[TextInput | GrammarInput, ByKey("type")]


class Custom(Strict):
    name: Identifier
    description: str | None = None
    format: CustomInput | None = None


class CustomTool(Strict):
    type: Literal["custom"]
    custom: Custom
    cache_control: CacheControl = None


Tool = Annotated[FunctionTool | CustomTool, ByKey("type")]
FunctionTools = Annotated[Items[FunctionTool], Field(min_length=1, max_length=128)]
Tools = Annotated[Items[Tool], Field(min_length=1, max_length=128)]
Functions = Annotated[Items[Function], Field(min_length=1, max_length=128)]


class Named(Strict):
    """Reference to a function or tool by name."""

    name: str


class FunctionChoice(Strict):
    type: Literal["function"]
    function: Named


class CustomChoice(Strict):
    type: Literal["custom"]
    custom: Named


ToolReference = Annotated[FunctionChoice | CustomChoice, ByKey("type")]


class AllowedTools(Strict):
    """A subset of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: Annotated[Items[ToolReference], Field(min_length=1)]


class AllowedToolsChoice(Strict):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoiceObject = Annotated[FunctionChoice | AllowedToolsChoice | CustomChoice, ByKey("type")]
ToolChoice = Annotated[Literal["none", "auto", "required"] | ToolChoiceObject, ByType("one of a string or object")]
FunctionCallChoice = Annotated[Literal["none", "auto"] | Named, ByType("one of a string or object")]
