"""What an answer will look like, settled before it is generated: its grammar, and how its text is to be read."""

from collections.abc import Sequence

import msgspec

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from shared.protocol.formats import HARMONY_START, REASONING_FORMATS, TOOL_FORMATS, OutputFormat
from shared.protocol.request import ChatRequest, Constraint
from worker.grammar import tags
from worker.grammar.calls import bounded_arguments, callable_tools, json_array_calls, optional_calls, required_calls
from worker.grammar.escapes import SpellingError, readable_grammar, readable_regex
from worker.grammar.keywords import SchemaError
from worker.grammar.lengths import Bounded, bounded_values
from worker.grammar.schema import schema_grammar

GUIDED = "guided"
"""The tool format of a text that is nothing but a JSON list of calls (:class:`shared.protocol.events.Started`)."""

_ANY_OBJECT = '{"type":"object"}'
_HARMONY_TURN = f"{HARMONY_START}assistant"
_HARMONY_FINAL = "<|channel|>final<|message|>"


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one answer is made and read.

    ``constraint`` is what the engine is held to: a grammar, a regular expression or a structural tag. ``param`` names
    the field of the request that asked for it. ``tools``, ``reasoning`` and ``in_reasoning`` are those of
    :class:`Started`. ``shown_tokens`` are special tokens that stay in the text, because they are its markers.
    ``free_until`` are texts before the first of which the constraint allows anything; without any, it holds from the
    start. ``bounded`` are the values with limited strings, which the constraint does not count.
    """

    constraint: Constraint | None = None
    param: str = ""
    tools: str = ""
    reasoning: str = ""
    in_reasoning: bool = False
    shown_tokens: tuple[int, ...] = ()
    free_until: tuple[str, ...] = ()
    bounded: tuple[Bounded, ...] = ()


def make_plan(request: ChatRequest, output: OutputFormat, prompt_end: str) -> Plan:
    """Return the plan for a chat, without ``shown_tokens``.

    ``output`` is what the model's template teaches it to write, ``prompt_end`` how the rendered prompt ends.
    Raises :class:`RequestRefused` when a schema is wrong or asks for what no grammar can hold.
    """
    tools = callable_tools(request)
    parallel = not request.single_call
    required = bool(tools) and (request.tool_choice == "required" or request.named_tool is not None)
    form = TOOL_FORMATS[output.tools] if output.tools else None
    if required and (form is None or form.shape is None):
        if output.reasoning is None:
            guided = Constraint(kind="grammar", value=json_array_calls(tools, parallel=parallel))
            return Plan(constraint=guided, param="tools", tools=GUIDED, bounded=bounded_arguments(None, tools))
        # A text with reasoning before the calls needs markers between.
        form = TOOL_FORMATS["hermes"]
    plan = Plan(
        tools=form.name if form and tools else "",
        reasoning=output.reasoning or "",
        in_reasoning=output.opens_reasoning(prompt_end),
        param="tools" if tools else "response_format",
    )
    shape = form.shape if form and tools else None
    plan = msgspec.structs.replace(plan, bounded=bounded_arguments(shape, tools) if shape else ())
    if required and form and shape:
        calls = required_calls(form, shape, tools, parallel=parallel)
        return _holding(plan, _after_reasoning(calls, output, prompt_end, final=False))
    if request.constraint is not None:
        if tools and not (form and shape):
            param = request.constraint.param
            message = f"This model's tool calls can't be combined with '{param}'. Leave one of them out."
            raise refuse(ProblemKind.INVALID, message, param=param)
        content = _content(request.constraint)
        begins = _content_begins(output, prompt_end)
        plan = msgspec.structs.replace(plan, bounded=(*plan.bounded, *_bounded_content(request.constraint, begins)))
        part = _after_reasoning(content, output, prompt_end, final=True)
        if form and shape:
            # XGrammar joins no open-ended row of calls with content that ends: one call, then.
            calls = required_calls(form, shape, tools, parallel=False)
            part = tags.either([part, _after_reasoning(calls, output, prompt_end, final=False)])
        return _holding(msgspec.structs.replace(plan, param=request.constraint.param), part)
    if form and shape:
        calls = optional_calls(form, shape, tools, parallel=parallel)
        return _holding(msgspec.structs.replace(plan, free_until=(shape.trigger,)), calls)
    return plan


def plain_plan(request: ChatRequest) -> Plan:
    """Return the plan for a plain completion, whose whole text is content. Raises as :func:`make_plan` does."""
    if request.constraint is None:
        return Plan()
    bounded = _bounded_content(request.constraint, [""])
    return _holding(Plan(param=request.constraint.param, bounded=bounded), _content(request.constraint))


def _holding(plan: Plan, part: tags.Format) -> Plan:
    match part:
        case {"type": "grammar", "grammar": text}:
            constraint = Constraint(kind="grammar", value=text)
        case {"type": "regex", "pattern": text}:
            constraint = Constraint(kind="regex", value=text)
        case _:
            constraint = Constraint(kind="structural_tag", value=tags.written(part))
    return msgspec.structs.replace(plan, constraint=constraint)


def _bounded_content(constraint: Constraint, begins: Sequence[str]) -> tuple[Bounded, ...]:
    return bounded_values(begins, constraint.value) if constraint.kind == "json_schema" else ()


def _content(constraint: Constraint) -> tags.Format:
    try:
        match constraint.kind:
            case "json_object":
                return tags.grammar(schema_grammar(_ANY_OBJECT))
            case "json_schema":
                return tags.grammar(schema_grammar(constraint.value))
            case "regex":
                return tags.regex(readable_regex(constraint.value))
            case "grammar":
                return tags.grammar(readable_grammar(constraint.value))
            case "structural_tag":
                return tags.client_format(constraint.value)
    except SchemaError as error:
        raise _refused(error, constraint.param) from error
    except SpellingError as error:
        raise refuse(ProblemKind.INVALID, f"Invalid {constraint.param}: {error}.", param=constraint.param) from error


def _refused(error: SchemaError, param: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"Invalid schema for {param}: {error}.", param=param)


def _after_reasoning(part: tags.Format, output: OutputFormat, prompt_end: str, *, final: bool) -> tags.Format:
    """``part`` with the reasoning before it that the model may write, or that the prompt has begun.

    ``final`` tells content from calls, which name their own channel where there are channels.
    """
    if output.reasoning is None:
        return part
    form = REASONING_FORMATS[output.reasoning]
    if form.name == "harmony":
        if final:
            part = tags.sequence([tags.const(_HARMONY_FINAL), part])
        thought = [tags.text_until(form.begin, form.end), tags.const(_HARMONY_TURN), part]
        return tags.either([part, tags.sequence(thought)])
    if output.opens_reasoning(prompt_end):
        return tags.sequence([tags.text_until("", form.end), part])
    if prompt_end.rstrip().endswith(form.end):
        return part
    return tags.either([part, tags.sequence([tags.text_until(form.begin, form.end), part])])


def _content_begins(output: OutputFormat, prompt_end: str) -> list[str]:
    """What may come before the content; nothing where it may begin the answer."""
    if output.reasoning is None:
        return [""]
    form = REASONING_FORMATS[output.reasoning]
    if form.name == "harmony":
        return [_HARMONY_FINAL]
    if output.opens_reasoning(prompt_end):
        return [form.end]
    return ["", form.end]
