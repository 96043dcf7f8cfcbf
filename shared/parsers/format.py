"""What describes a family's output format: the signs by which it is recognised, the shape of its calls, its reader.

The prompt probe, the grammar of calls and the parsers all obey these descriptions. The families are in
:mod:`shared.parsers.families`.
"""

from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec

from shared.parsers.offer import Offer
from shared.parsers.parts import Writer
from shared.parsers.source import Script, Source

ToolFormatName = str
ReasoningFormatName = str


LISTED = ('{"name": "{name}", "arguments": ', "}")
"""The texts before and after arguments in a list of calls."""


class Elements(msgspec.Struct, frozen=True, kw_only=True):
    """How arguments are written as elements, as in ``<parameter=KEY>VALUE</parameter>``.

    ``call`` starts a call, and ``call_end`` ends it. The tool's name is followed by one of ``name_ends``. ``key``
    starts an argument, and its name is followed by ``key_end`` and perhaps ``value``. Names may be the first quoted
    attribute. The argument ends with ``value_end``. ``begin`` is all that precedes a value as the model writes it,
    with ``{key}`` for its name and ``{type}`` for its type. If ``text_sign`` marks strings, ``text_begin`` may be the
    same for a string.
    """

    call: str
    name_ends: tuple[str, ...]
    key: str
    key_end: str
    value_end: str
    call_end: str
    begin: str
    value: str = ""
    text_begin: str = ""
    text_sign: str = ""
    newline: str = ""
    """What is between a value and ``value_end``."""
    trimmed: bool = False
    """Whether a line break before and after a value is no part of it."""
    separator: str = "\n"
    """What follows an argument."""
    cdata: bool = False
    """Whether a value may be a CDATA section."""

    def begin_for(self, key: str, kind: str) -> str:
        """Return what precedes a value of the JSON Schema type ``kind``."""
        begin = self.text_begin if self.text_begin and kind == "string" else self.begin
        return begin.replace("{key}", key).replace("{type}", "number" if kind == "integer" else kind)


class CallShape(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a tool call, as a tag of XGrammar's ``triggered_tags``.

    ``begin`` starts with ``trigger``. ``content`` is the form of the text between ``begin`` and ``end``, which a schema
    constrains: ``arguments`` is the tool's parameters as JSON; ``elements`` the same as :class:`Elements`; ``quoted``
    as objects with bare keys, whose strings are between two ``quote``; ``nested`` as elements in elements, with
    ``quote`` before each tag. In these, ``{name}`` in ``begin`` is replaced
    by the tool's name, and ``{n}`` by a number. ``calls`` is a JSON array of objects, each ``item`` with the arguments
    between its texts; ``python_calls`` is a list of Python calls. These have one tag for all tools.

    ``separator`` is between two calls, ``group`` encloses calls. ``single``: a message has one call, which ends the
    turn.
    """

    trigger: str
    begin: str
    end: str
    content: Literal["arguments", "calls", "elements", "nested", "python_calls", "quoted"] = "arguments"
    item: tuple[str, str] = LISTED
    elements: Elements | None = None
    quote: str = ""
    separator: str = ""
    group: tuple[str, str] | None = None
    single: bool = False

    @property
    def listed(self) -> bool:
        """Whether one tag contains the calls of all tools."""
        return self.content in ("calls", "python_calls")

    def begin_for(self, tool: str) -> str:
        """Return ``begin`` for ``tool``."""
        return self.begin.replace("{name}", tool)

    def item_for(self, tool: str, number: int | None = None) -> str:
        """Return what precedes the arguments of ``tool`` in a list, perhaps with a ``number``."""
        text = self.item[0].replace('"{name}"', msgspec.json.encode(tool).decode())
        return text if number is None else text.replace("{n}", str(number))


class CallReader(Protocol):
    """Reads calls after a trigger, which has been consumed. An empty trigger means a lead comes next, not consumed yet.

    It emits the calls and raises :class:`shared.parsers.source.Malformed` on invalid input. Text that is then pending
    in the source is content.
    """

    def __call__(
        self, source: Source, writer: Writer, trigger: str, form: "ToolFormat", offer: Offer
    ) -> Script[None]: ...


class OutputScript(Protocol):
    """Reads the whole output. ``in_reasoning``: the prompt ends inside reasoning."""

    def __call__(self, source: Source, writer: Writer, *, in_reasoning: bool, offer: Offer) -> Script[None]: ...


class ToolFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The tool-call format of a model family.

    ``aliases`` are the names of other servers' parsers. ``triggers`` start a call anywhere in the text. ``leads`` start
    one only at the beginning of the text, and only if the name of a known tool follows, because plain content may begin
    with them too; ``{name}`` in them stands for each of these names. ``ends`` may close several calls.
    ``special_tokens`` must stay in the text, although many tokenizers skip them when they decode. ``signs`` are other
    texts that templates of the family write. ``in_reasoning``: triggers start a call inside reasoning too, because the
    family's models forget to close it. ``read`` reads calls; ``script`` reads the whole output instead.
    """

    name: ToolFormatName
    aliases: tuple[str, ...] = ()
    shape: CallShape
    read: CallReader | None = None
    script: OutputScript | None = None
    triggers: tuple[str, ...] = ()
    leads: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    special_tokens: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    in_reasoning: bool = False

    def leads_for(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return ``leads`` for tools of these names."""
        return tuple(
            lead.replace("{name}", name) for lead in self.leads for name in (names if "{name}" in lead else [""])
        )


class ReasoningFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The texts that enclose a model family's reasoning; the fields not named here as in :class:`ToolFormat`.

    ``turn`` is what the model writes between ``end`` and the next part, and ``content`` precedes content: the end is
    that of every message, not only of reasoning. ``wrappers`` are texts that enclose content; those without a beginning
    are dropped wherever they are. ``anywhere``: reasoning may begin inside content, and end with these texts, because
    they are tokens.
    """

    name: ReasoningFormatName
    aliases: tuple[str, ...] = ()
    begin: str
    end: str
    special_tokens: tuple[str, ...] = ()
    turn: str = ""
    content: str = ""
    wrappers: tuple[tuple[str, str], ...] = ()
    anywhere: bool = False
    script: OutputScript | None = None
