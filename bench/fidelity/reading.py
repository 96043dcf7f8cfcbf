"""Reads the fields of an answer as leniently as a client might: the first JSON object in it, or else lines."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_LINE = r"""["'*]*\b{}\b["'*]*\s*[:=]\s*["'*]*([^"'*,;\n}}]+)"""


def fields_of(text: str, names: Sequence[str], labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of the fields ``names`` in an answer.

    The text need not be JSON: lines such as ``Name: Anna`` count too, and for a single field the first of ``labels``
    that occurs.
    """
    found = _first_object(text)
    fields = {name: found[name] for name in names if name in found}
    for name in names:
        if name not in fields and (line := re.search(_LINE.format(re.escape(name)), text, re.IGNORECASE)):
            fields[name] = line[1].strip()
    if labels and fields.get(names[0]) not in labels:
        places = {text.lower().find(label): label for label in labels if label in text.lower()}
        if places:
            fields[names[0]] = places[min(places)]
    return fields


def call_of(text: str, tools: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of the first call in an answer, and its name as ``tool``.

    Without a call as JSON, the first of ``tools`` whose name occurs counts, without arguments.
    """
    text = text.lstrip().removeprefix("[")
    call = _first_object(text)
    if call.get("name") in tools:
        arguments = call.get("arguments", call.get("parameters"))
        return {"tool": call["name"]} | (dict(arguments) if isinstance(arguments, Mapping) else {})
    places = {text.find(name): name for name in tools if name in text}
    return {"tool": places[min(places)]} if places else {}


def right(found: Mapping[str, Any], expected: Mapping[str, str | int]) -> int:
    """Return the number of ``expected`` fields that are right. Capital letters and the type of a number don't count."""
    return sum(_plain(found.get(name)) == _plain(value) for name, value in expected.items())


def _plain(value: Any) -> str:
    return str(value).strip(" .").casefold()


def _first_object(text: str) -> dict[str, Any]:
    """Return the first JSON object in ``text``; one that was cut counts as far as it goes."""
    for place in re.finditer(r"\{", text):
        rest = text[place.start() :]
        for ending in ("", '"}', "}", '"}}', "}}", "null}"):
            try:
                found, _ = json.JSONDecoder().raw_decode(rest + ending)
            except ValueError:
                continue
            if isinstance(found, dict) and found:
                return found
    return {}
