"""Grammars of the inputs of custom tools."""

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import CustomInput
from worker.grammar.ebnf import Rules
from worker.grammar.json_text import JsonRules
from worker.grammar.lark import LarkError, lark_expression
from worker.grammar.patterns import whole_regex_of
from worker.grammar.regex import PatternError
from worker.grammar.regex_writer import written


def input_string(rules: Rules, custom: CustomInput) -> str:
    """Return the expression of the content of a JSON string with an input of ``custom``.

    Raises :class:`RequestRefused` if its grammar is invalid or not supported.
    """
    return JsonRules(rules).content() if custom.syntax == "text" else input_text(rules, custom, in_json=True)


def input_text(rules: Rules, custom: CustomInput, *, in_json: bool = False) -> str:
    """Return the expression of the texts of the grammar of ``custom``, which has one. Raises as
    :func:`input_string` does."""
    try:
        if custom.syntax == "regex":
            return written(rules, whole_regex_of(custom.definition), in_json=in_json)
        return lark_expression(rules, custom.definition, in_json=in_json)
    except (PatternError, LarkError) as error:
        raise refuse(ProblemKind.INVALID, f"Invalid '{custom.param}': {error}.", param=custom.param) from error
