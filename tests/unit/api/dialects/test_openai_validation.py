"""Wrong values of request fields: message, param and code of each."""

import itertools
from typing import Any

import pytest

from tests.unit.api.dialects.bodies import body, error_of

FAULTS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"user": 5}, "user"),
    ({"temperature": 9}, "temperature"),
    ({"top_logprobs": 1}, "top_logprobs"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"metadata": {"a": "b"}}, "metadata"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
)
"""Faults in the order in which the service reports them: wrong types, wrong values, rules between fields, biases."""


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(FAULTS, 2)))
def test_of_several_faults_the_service_s_first_is_reported(first: Any, second: Any) -> None:
    for fields in (first[0] | second[0], second[0] | first[0]):
        assert error_of(body(**fields))[1]["param"] == first[1]


def test_what_a_client_wrote_is_repeated_only_in_part() -> None:
    _, error = error_of(body(messages=[{"role": "x" * 100_000, "content": ""}]))
    assert len(error["message"] or "") < 300
    _, error = error_of(body(**{"y" * 100_000: 1}))
    assert len(error["message"] or "") < 300
