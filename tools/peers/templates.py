"""Chat templates in a folder: a call, its result and the second answer with each of them.

A template is shown two tools. A call is written as history, what the template made of it is read back as a model's
output, and must be the call. Results, later turns and two calls at a time must be in the prompt too. What came of the
templates of public repositories is in ``templates.tsv``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from shared.parsers.formats import MARKERS
from shared.protocol.request import ChatRequest, Message, Tool, ToolCall
from tools.peers.reading import read, same_json
from worker.prompt.conversation import render
from worker.prompt.facts import TemplateFacts
from worker.prompt.probe import probe
from worker.prompt.template import ChatTemplate, ChatTemplateError

AS_TEXT = "tools are text: it "
_WEATHER = {
    "type": "object",
    "properties": {
        "town": {"type": "string", "description": "A town."},
        "days": {"type": "integer"},
        "exact": {"type": "boolean"},
        "hours": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["town"],
}
_TOOLS = (
    Tool(name="forecast", description="Returns the weather of a town.", parameters=json.dumps(_WEATHER)),
    Tool(name="stop_clock"),
)
_FIRST = ToolCall(
    id="call_4fA9c2E71b8d4c6fA0", name="forecast", arguments='{"town": "Łódź, \\"old\\"", "days": 3, "exact": true}'
)
_SECOND = ToolCall(id="call_00b1d2E3f4a5b6c7D8", name="forecast", arguments='{"town": "5", "hours": [6, 18]}')
_SYSTEM = Message(role="system", content="Be brief, Cassandra.")
_USER = Message(role="user", content="How does Hyperborea fare?")
_AGAIN = Message(role="user", content="And Thule?")
_CALL = Message(role="assistant", tool_calls=(_FIRST,))
_CALLS = Message(role="assistant", tool_calls=(_FIRST, _SECOND))
_RESULT = Message(role="tool", name="forecast", tool_call_id=_FIRST.id, content="Snow over Borealis.")
_OTHER = Message(role="tool", name="forecast", tool_call_id=_SECOND.id, content="Fog over Lethe.")
_ANSWER = Message(role="assistant", content="It snows, says Pythia.")
_CONVERSATIONS = {
    "a result": [_SYSTEM, _USER, _CALL, _RESULT],
    "a second answer": [_SYSTEM, _USER, _CALL, _RESULT, _ANSWER, _AGAIN],
    "a user's turn after a result": [_USER, _CALL, _RESULT, _AGAIN],
    "two calls": [_SYSTEM, _USER, _CALLS, _RESULT, _OTHER],
}


def replay(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the problem of each distinct template that mentions tools, empty if there is none, by its formats."""
    results: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    for file in sorted(folder.rglob("*.jinja")):
        source = file.read_text("utf-8")
        if "tool" not in source or (key := hash_of(source)) in seen:
            continue
        seen.add(key)
        chat = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
        facts = probe(chat, [one for one in MARKERS if one in source])
        problem = next(_problems(chat, facts), "")
        if facts.tools_as_text and not problem:
            problem = AS_TEXT + _lacks(chat, facts)
        name = f"{file.relative_to(folder)} {key}"
        results.setdefault(f"{facts.output.tools}, {facts.output.reasoning}", {})[name] = problem
    return results


def hash_of(source: str) -> str:
    """Return what two templates have in common that differ in white space only."""
    return sha256("".join(source.split()).encode()).hexdigest()[:12]


def _problems(chat: ChatTemplate, facts: TemplateFacts) -> Iterator[str]:
    prompts = {}
    for name, messages in {"tools": [_SYSTEM, _USER], **_CONVERSATIONS}.items():
        try:
            prompts[name] = _prompt(chat, facts, messages)
        except ChatTemplateError as error:
            yield f"{name}: {error}"
            return
        texts = [message.content for message in messages]
        texts += ["forecast", "Returns the weather of a town.", "stop_clock", "days"]
        for text in texts:
            if text not in prompts[name]:
                yield f"{name}: without {text!r}"
    for name, calls in {"a result": [_FIRST], "two calls": [_FIRST, _SECOND]}.items():
        if facts.single_calls and len(calls) > 1:
            continue
        text, opened = _written(prompts["tools"], prompts[name])
        opened = opened and facts.output.opens_reasoning(prompts["tools"])
        found = read(text, facts.output.tools or "none", facts.output.reasoning or "none", _TOOLS, opened=opened)
        pairs = [(call.name, call.arguments) for call in calls]
        if len(found.calls) != len(pairs) or not all(
            one[0] == other[0] and same_json(one[1], other[1]) for one, other in zip(found.calls, pairs, strict=True)
        ):
            yield f"{name}: {text!r} is read as {found.calls}"


def _lacks(chat: ChatTemplate, facts: TemplateFacts) -> str:
    """Return why tools are text."""
    try:
        shown = _prompt(chat, msgspec.structs.replace(facts, tools_as_text=False), [_SYSTEM, _USER])
    except ChatTemplateError as error:
        return f"refuses them: {error}"
    return "writes no call that can be read" if "forecast" in shown else "does not show them"


def _prompt(chat: ChatTemplate, facts: TemplateFacts, messages: Sequence[Message]) -> str:
    return render(chat, ChatRequest(model="", messages=tuple(messages), tools=_TOOLS), facts)


def _written(start: str, prompt: str) -> tuple[str, bool]:
    """Return what is between the user's message and the first result, and whether it continues ``start``."""
    end = prompt.index(_RESULT.content)
    if prompt.startswith(start):
        return prompt[len(start) : end], True
    return prompt[prompt.index(_USER.content) + len(_USER.content) : end], False
