"""Generated cases of three tasks: extraction, classification, and the choice of a tool. The same at every run."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from shared.protocol.request import Tool

T = TypeVar("T")


class Case(NamedTuple):
    """What a model is asked, and the values of the fields that are right."""

    prompt: str
    expected: Mapping[str, str | int]


class Task(NamedTuple):
    """Cases that share a schema. With ``tools``, the schema is that of a call of one of them."""

    name: str
    cases: Sequence[Case]
    schema: Mapping[str, Any]
    max_tokens: int
    labels: Sequence[str] = ()
    """Values of the only field, any of which is an answer in plain text."""
    tools: Sequence[Tool] = ()


def tasks(count: int) -> list[Task]:
    """Return the tasks with ``count`` cases each."""
    return [_extraction(count), _classification(count), _tool_choice(count)]


_NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Irene", "Jack", "Kate", "Leo", "Maria",
          "Nina", "Oscar", "Paula", "Ruth", "Sam", "Tom", "Vera")  # fmt: skip
_CITIES = ("Paris", "London", "Berlin", "Rome", "Madrid", "Vienna", "Oslo", "Dublin", "Prague", "Lisbon", "Boston",
           "Chicago", "Tokyo", "Sydney", "Toronto", "Cairo")  # fmt: skip
_JOBS = ("teacher", "doctor", "baker", "lawyer", "nurse", "farmer", "painter", "pilot", "singer", "driver", "writer",
         "gardener", "plumber", "waiter", "chemist", "engineer")  # fmt: skip
_PEOPLE = (
    "{name} is a {age}-year-old {job} from {city}.",
    "The {job} {name}, who is {age}, lives in {city}.",
    "At {age}, {name} still works as a {job} in {city}.",
    "{name} moved to {city} to become a {job} and has just turned {age}.",
    "In {city} we met {name}, {age} years old and a {job} by trade.",
    "My neighbour {name} is {age}. She was born in {city} and works as a {job}.",
)
_ASKED = (
    'Write the person in this sentence as a JSON object with the keys "name", "age", "job" and "city": {}',
    "Extract name, age, job and city from the text and answer in JSON.\n\nText: {}",
    "{}\n\nWhat are the name, age, job and city of this person? Reply with JSON only.",
)


def _extraction(count: int) -> Task:
    schema = _object(name={"type": "string"}, age={"type": "integer"}, job={"type": "string"}, city={"type": "string"})
    cases = []
    for chance, template in _drawn(_PEOPLE, count, seed=1):
        person: dict[str, str | int] = {
            "name": chance.choice(_NAMES),
            "age": chance.randrange(19, 90),
            "job": chance.choice(_JOBS),
            "city": chance.choice(_CITIES),
        }
        ask = chance.choice(_ASKED)
        cases.append(Case(ask.format(template.format_map(person)), person))
    return Task("extraction", cases, schema, max_tokens=120)


_SENTENCES = {
    "sport": (
        "The {team} won the {game} match by three goals.",
        "{name} trains every day for the {game} championship.",
        "The {game} final was decided in the last minute by {name}.",
    ),
    "food": (
        "{name} baked {dish} with butter and sugar.",
        "This restaurant in {city} serves the best {dish}.",
        "Add salt and pepper, and cook the {dish} for ten minutes.",
    ),
    "weather": (
        "Heavy {sky} is expected in {city} tomorrow.",
        "After days of {sky}, the sun is back over {city}.",
        "It is cold in {city}, and the forecast says {sky}.",
    ),
    "music": (
        "{name} plays the {instrument} in an orchestra.",
        "The band's new album begins with a {instrument} solo.",
        "The concert in {city} ended with a song for {instrument}.",
    ),
}
_WORDS = {
    "team": ("Tigers", "Lions", "Eagles", "Sharks"),
    "game": ("football", "tennis", "hockey", "basketball"),
    "dish": ("soup", "bread", "pasta", "a cake", "pancakes"),
    "sky": ("rain", "snow", "fog", "thunder"),
    "instrument": ("piano", "violin", "guitar", "trumpet"),
    "name": _NAMES,
    "city": _CITIES,
}


def _classification(count: int) -> Task:
    labels = tuple(_SENTENCES)
    listed = ", ".join(labels[:-1]) + f" or {labels[-1]}"
    ask = f'What is this sentence about: {listed}? Answer with a JSON object with the key "topic". The sentence: '
    cases = []
    for chance, (label, template) in _drawn([(a, b) for a, lines in _SENTENCES.items() for b in lines], count, seed=2):
        words = {kind: chance.choice(choices) for kind, choices in _WORDS.items()}
        cases.append(Case(ask + template.format_map(words), {"topic": label}))
    return Task("classification", cases, _object(topic={"enum": list(labels)}), max_tokens=80, labels=labels)


_TOOLS = {
    "get_weather": ("Get the weather in a city", {"city": {"type": "string"}}),
    "convert_money": (
        "Convert an amount of money to another currency",
        {"amount": {"type": "integer"}, "currency": {"type": "string"}},
    ),
    "send_message": ("Send a message to a person", {"person": {"type": "string"}, "text": {"type": "string"}}),
    "set_timer": ("Set a timer", {"minutes": {"type": "integer"}}),
}
_REQUESTS = (
    ("get_weather", "What is the weather like in {city}?"),
    ("get_weather", "Do I need an umbrella in {city} today?"),
    ("convert_money", "Convert {amount} dollars to {currency}."),
    ("convert_money", "How much is {amount} dollars in {currency}?"),
    ("send_message", 'Send the message "{text}" to {person}.'),
    ("send_message", 'Tell {person}: "{text}"'),
    ("set_timer", "Set a timer for {minutes} minutes."),
    ("set_timer", "Remind me in {minutes} minutes."),
)
_TEXTS = ("See you soon", "Dinner is ready", "I am late", "Happy birthday", "Call me back")
_CURRENCIES = ("euros", "yen", "pounds", "francs")


def _tool_choice(count: int) -> Task:
    cases = []
    for chance, (name, template) in _drawn(_REQUESTS, count, seed=3):
        values: dict[str, str | int] = {
            "city": chance.choice(_CITIES),
            "amount": chance.randrange(10, 900),
            "currency": chance.choice(_CURRENCIES),
            "person": chance.choice(_NAMES),
            "text": chance.choice(_TEXTS),
            "minutes": chance.randrange(2, 60),
        }
        arguments = {argument: values[argument] for argument in _TOOLS[name][1]}
        cases.append(Case(template.format_map(values), {"tool": name, **arguments}))
    tools = [
        Tool(name=name, description=what, parameters=json.dumps(_object(**arguments)))
        for name, (what, arguments) in _TOOLS.items()
    ]
    calls = [_object(name={"const": name}, arguments=_object(**arguments)) for name, (_, arguments) in _TOOLS.items()]
    return Task("tool choice", cases, {"anyOf": calls}, max_tokens=120, tools=tools)


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _drawn(templates: Sequence[T], count: int, *, seed: int) -> Iterator[tuple[random.Random, T]]:
    """Yield each of ``templates`` in turn, ``count`` in all, with a source of random words."""
    chance = random.Random(seed)  # noqa: S311 - the same cases at every run
    for index in range(count):
        yield chance, templates[index % len(templates)]
