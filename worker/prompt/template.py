"""Renders chat templates in the environment of Hugging Face transformers, so that published templates work.

The environment is the one documented at https://huggingface.co/docs/transformers/chat_templating: Jinja2 sandboxed,
``trim_blocks``, ``lstrip_blocks``, loop controls, ``tojson`` without HTML escapes,
``raise_exception``, ``strftime_now`` and the ``{% generation %}`` tag. OpenVINO Model Server's ``from_json`` is added.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplateError(Exception):
    """The template refused the conversation, or failed on it. The message is the template's own, if any."""


class ChatTemplate:
    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        """Compile ``source``. Raises :class:`ChatTemplateError` when it is invalid."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        environment.filters |= {"tojson": _to_json, "from_json": _from_json, "fromjson": _from_json}
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = environment.from_string(source)
        except (TemplateError, RecursionError) as error:
            raise ChatTemplateError(f"The chat template can't be compiled: {str(error).rstrip('.')}.") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """Return the prompt for ``variables`` (messages, tools, ...).

        Raises :class:`ChatTemplateError`, with the template's own message when it calls ``raise_exception``, otherwise
        with the kind of failure. There is no time limit here: the supervisor kills a process that takes too long.
        """
        try:
            return self._template.render({**variables, **self._tokens})
        except TemplateError as error:
            raise ChatTemplateError(error.message or type(error).__name__) from error
        except Exception as error:
            # A template is a program and can raise anything: ZeroDivisionError, RecursionError, TypeError, ...
            raise ChatTemplateError(f"The model's chat template failed: {type(error).__name__}: {error}") from error


class _GenerationTag(Extension):
    """``{% generation %}...{% endgeneration %}`` marks training targets. In a prompt, it is replaced by its body."""

    tags = {"generation"}  # noqa: RUF012 - declared as a plain set by the base class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _from_json(value: Any) -> Any:
    """Return the value of JSON text, as OpenVINO Model Server's templates expect; anything else as it is."""
    return json.loads(value) if isinstance(value, str) else value


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
