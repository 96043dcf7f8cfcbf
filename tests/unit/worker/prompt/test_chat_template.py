"""Chat templates render as published templates expect, and fail with a message a client can use."""

from typing import Any

import pytest

from worker.prompt.template import ChatTemplate, ChatTemplateError


def _render(source: str, **variables: Any) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(variables)


def test_blocks_leave_no_white_space() -> None:
    source = "{% for m in messages %}\n    {% if m %}\n{{ m }}\n    {% endif %}\n{% endfor %}\n"
    assert _render(source, messages=["a", "b"]) == "a\nb\n"


def test_the_models_tokens_win_over_variables() -> None:
    assert _render("{{ bos_token }}{{ eos_token }}", bos_token="forged") == "<s></s>"


def test_tojson_leaves_characters_alone_and_keeps_order() -> None:
    value = {"b": "<é> & 'x'", "a": [1, 2.5, None, True]}
    assert _render("{{ v | tojson }}", v=value) == '{"b": "<é> & \'x\'", "a": [1, 2.5, null, true]}'
    assert _render("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}") == '{\n "a": 2,\n "b": 1\n}'
    assert _render("{{ ['é'] | tojson(ensure_ascii=true, separators=(',', ':')) }}") == '["\\u00e9"]'


def test_loop_controls_and_generation_blocks_work() -> None:
    skip, leave = "{% if i == 1 %}{% continue %}{% endif %}", "{% if i == 3 %}{% break %}{% endif %}"
    assert _render("{% for i in range(9) %}" + skip + leave + "{{ i }}{% endfor %}") == "02"
    assert _render("a{% generation %}b{{ c }}{% endgeneration %}d", c="c") == "abcd"


def test_strftime_now_gives_a_date() -> None:
    assert len(_render("{{ strftime_now('%Y-%m-%d') }}")) == len("2026-01-01")


def test_raise_exception_carries_the_templates_own_message() -> None:
    with pytest.raises(ChatTemplateError, match=r"^Roles must alternate$"):
        _render("{{ raise_exception('Roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ a.b.c }}",
        "{{ 'x' + none }}",
        "{{ 1 / 0 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
    ],
)
def test_every_failure_is_a_template_error_with_a_message(source: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        _render(source, messages=[])
    assert str(caught.value)


@pytest.mark.parametrize("source", ["{% if %}", "{{ x", "{% nosuch %}"])
def test_a_broken_template_is_refused_when_it_is_compiled(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="can't be compiled"):
        ChatTemplate(source, bos_token="", eos_token="")
