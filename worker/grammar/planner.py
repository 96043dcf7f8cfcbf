"""Makes output plans: combines tools, response format and the model's own format into one constraint."""

from collections.abc import Sequence

import msgspec

from shared.parsers.formats import REASONING_FORMATS, TOOL_FORMATS, OutputFormat
from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest, Constraint
from worker.engine.protocol import LengthLimits, OutputGrammar
from worker.grammar import tags
from worker.grammar.calls import (
    CallableTool,
    argument_length_limits,
    callable_tools,
    optional_calls,
    required_calls,
)
from worker.grammar.client_grammar import readable_grammar
from worker.grammar.json_text import json_mode_grammar
from worker.grammar.patterns import text_grammar, whole_regex_of, without_upper_limit
from worker.grammar.plan import Plan
from worker.grammar.regex import PatternError
from worker.grammar.schema.compiler import schema_grammar
from worker.grammar.schema.keywords import SchemaError
from worker.grammar.schema.limits import length_limits_of


def make_plan(request: ChatRequest, output: OutputFormat, prompt_end: str, *, minimums: bool = False) -> Plan:
    """Return the plan for a chat, without ``shown_tokens``.

    ``output`` is the model's output format, ``prompt_end`` the end of the rendered prompt. ``minimums``: the
    plan's ``length_limits`` enforce every long ``minLength``. Otherwise, the grammar does.
    Raises :class:`RequestRefused` if a schema is invalid or can't be expressed as a grammar.
    """
    tools = callable_tools(request, minimums=minimums)
    parallel = request.max_calls != 1
    required = bool(tools) and (request.tool_choice == "required" or request.named_tool is not None)
    if request.constraint is not None or required:
        _check_end(request)
    form = TOOL_FORMATS[output.tools] if output.tools else None
    if required and form is None:
        form = TOOL_FORMATS["hermes"]
    plan = Plan(
        tools=form.name if form and tools else "",
        reasoning=output.reasoning or "",
        in_reasoning=output.opens_reasoning(prompt_end),
        param="tools" if tools else "response_format",
    )
    shape = form.shape if form and tools else None
    if shape is None:
        _check_inputs(tools)
    plan = msgspec.structs.replace(plan, length_limits=argument_length_limits(shape, tools) if shape else ())
    if required and shape:
        calls = required_calls(shape, tools, parallel=parallel)
        return _with_grammar(plan, _after_reasoning(calls, output, prompt_end, final=False))
    if request.constraint is not None:
        if tools and shape is None:
            param = request.constraint.param
            message = f"This model's tool calls can't be combined with '{param}'. Leave one of them out."
            raise refuse(ProblemKind.INVALID, message, param=param)
        begins = _content_begins(output, prompt_end)
        content, limits = _content(request.constraint, begins, alone=not tools, minimums=minimums)
        plan = msgspec.structs.replace(plan, length_limits=(*plan.length_limits, *limits))
        part = _after_reasoning(content, output, prompt_end, final=True)
        if shape:
            # XGrammar can't combine an unbounded sequence of calls with bounded content, so only one call is allowed.
            calls = required_calls(shape, tools, parallel=False)
            part = tags.either([part, _after_reasoning(calls, output, prompt_end, final=False)])
        return _with_grammar(msgspec.structs.replace(plan, param=request.constraint.param), part)
    if shape:
        calls = optional_calls(shape, tools, parallel=parallel)
        return _with_grammar(msgspec.structs.replace(plan, triggers=(shape.trigger,)), calls)
    return plan


def plain_plan(request: ChatRequest, *, minimums: bool = False) -> Plan:
    """Return the plan for a plain completion, whose whole text is content. ``minimums`` is as in :func:`make_plan`.

    Raises :class:`RequestRefused` as :func:`make_plan` does.
    """
    if request.constraint is None:
        return Plan()
    _check_end(request)
    content, limits = _content(request.constraint, [""], alone=True, minimums=minimums)
    return _with_grammar(Plan(param=request.constraint.param, length_limits=limits), content)


def _check_inputs(tools: Sequence[CallableTool]) -> None:
    """Raise :class:`RequestRefused` if a tool has a grammar: it can't be enforced."""
    for function in tools:
        custom = function.tool.custom
        if custom is not None and custom.syntax != "text":
            message = (
                f"Unsupported parameter: '{custom.param}' is not supported with this model, unless a call is required: "
                "no grammar can constrain the form of its tool calls. Set 'tool_choice', or omit the format."
            )
            raise refuse(ProblemKind.INVALID, message, param=custom.param, code="unsupported_parameter")


def _check_end(request: ChatRequest) -> None:
    """Raise :class:`RequestRefused` for ``ignore_eos``: a grammar does not hold beyond the end of its text."""
    if request.sampling.ignore_eos:
        message = "'ignore_eos' can't be combined with structured output or required tool calls. Leave one of them out."
        raise refuse(ProblemKind.INVALID, message, param="ignore_eos")


def _with_grammar(plan: Plan, part: tags.Format) -> Plan:
    match part:
        case {"type": "grammar", "grammar": text}:
            grammar = OutputGrammar(text)
        case _:
            grammar = OutputGrammar(tags.to_json(part), tagged=True)
    return msgspec.structs.replace(plan, grammar=grammar)


def _content(
    constraint: Constraint, begins: Sequence[str], *, alone: bool, minimums: bool
) -> tuple[tags.Format, tuple[LengthLimits, ...]]:
    """Return the format of the content, which follows one of ``begins``, and what it does not limit.

    ``alone``: it is the only form of output.
    """
    try:
        match constraint.kind:
            case "json_object":
                return tags.grammar(json_mode_grammar()), tuple(LengthLimits(begin, "{}") for begin in begins)
            case "json_schema":
                limits = length_limits_of(begins, constraint.value, minimums=minimums)
                return tags.grammar(schema_grammar(constraint.value, minimums=minimums)), limits
            case "regex":
                node, maximum = whole_regex_of(constraint.value), None
                # Text can only be counted from a known place on, and only if no tool call can take its place.
                if alone and len(begins) == 1:
                    node, maximum = without_upper_limit(node)
                limits = () if maximum is None else (LengthLimits(begins[0], max_length=maximum),)
                return tags.grammar(text_grammar(node)), limits
            case "grammar":
                return tags.grammar(readable_grammar(constraint.value)), ()
            case "structural_tag":
                return tags.client_format(constraint.value), ()
    except SchemaError as error:
        message = f"Invalid schema for {constraint.param}: {error}."
        raise refuse(ProblemKind.INVALID, message, param=constraint.param) from error
    except PatternError as error:
        raise refuse(ProblemKind.INVALID, f"Invalid {constraint.param}: {error}.", param=constraint.param) from error


def _after_reasoning(part: tags.Format, output: OutputFormat, prompt_end: str, *, final: bool) -> tags.Format:
    """Return ``part``, preceded by optional reasoning, or by the rest of the reasoning that the prompt has opened.

    ``final``: ``part`` is content. In some formats content needs a header; calls include their own.
    """
    if output.reasoning is None:
        return part
    form = REASONING_FORMATS[output.reasoning]
    if form.turn:
        if final:
            part = tags.sequence([tags.const(form.content), part])
        thought = [tags.text_until(form.begin, form.end), tags.const(form.turn), part]
        return tags.either([part, tags.sequence(thought)])
    if output.opens_reasoning(prompt_end):
        return tags.sequence([tags.text_until("", form.end), part])
    if prompt_end.rstrip().endswith(form.end):
        return part
    return tags.either([part, tags.sequence([tags.text_until(form.begin, form.end), part])])


def _content_begins(output: OutputFormat, prompt_end: str) -> list[str]:
    """Return the texts that may directly precede the content; empty if the output may start with content."""
    if output.reasoning is None:
        return [""]
    form = REASONING_FORMATS[output.reasoning]
    if form.content:
        return [form.content]
    if output.opens_reasoning(prompt_end):
        return [form.end]
    return ["", form.end]
