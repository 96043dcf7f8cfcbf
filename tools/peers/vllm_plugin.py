"""Plugin of pytest, with which vLLM's tests find our parsers. All else that they import of it is a stub."""

import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shared.protocol.request import Tool
from tools.peers.reading import named, read

_STUBBED = ("vllm", "torch", "transformers", "openai", "mistral_common", "partial_json_parser", "xgrammar", "regex")
_internal = re.compile(r"XPASS|vllm_plugin\.Record object|\bis <class")
"""In the error of a test that does not compare what was read."""
_OPENED = bool(os.environ["PEER_OPENED"])
_OTHER = "another part of the interface"
_results: list[tuple[str, str, str]] = []


_seen: list[str] = []
"""What the running test has had read: if it then asks for another part of the interface, what it compared was right."""


class _Lenient(type):
    """Every object is an instance: tests ask for classes that are stubs here."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class Record(metaclass=_Lenient):
    """An object with the attributes it was made with; any other is None."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and all(
            value == other.__dict__.get(name) for name, value in self.__dict__.items() if name != "id"
        )

    def __hash__(self) -> int:
        return 0

    @classmethod
    def from_pretrained(cls, *arguments: Any, **fields: Any) -> "Tokenizer":
        return Tokenizer()

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self.__dict__


class Tokenizer:
    """Every character is a token."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *arguments, **_: None

    def get_vocab(self) -> dict[str, int]:
        return {}

    def tokenize(self, text: str, *_: Any, **__: Any) -> list[str]:
        return [text]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)


def _parser(kind: str, name: str) -> type:
    def offered(request: Any, own: Any) -> Sequence[Tool]:
        tools = getattr(request, "tools", None) or own or []
        functions = [getattr(tool, "function", None) or tool for tool in tools if not isinstance(tool, str)]
        functions = [one if not isinstance(one, dict) else Record(**(one.get("function") or one)) for one in functions]
        return [
            Tool(
                name=str(one.name), parameters=json.dumps(one.parameters) if isinstance(one.parameters, dict) else None
            )
            for one in functions
        ]

    class Adapter:
        def __init__(self, tokenizer: Any = None, tools: Any = None, **_: Any) -> None:
            if named(kind, name) is None:  # type: ignore[arg-type]
                pytest.skip(f"no parser {name}")
            self._tools = tools
            self.model_tokenizer = tokenizer

        def __getattr__(self, attribute: str) -> Any:
            pytest.skip(_OTHER)

        def extract_tool_calls(self, model_output: str, request: Any = None) -> Record:
            mentioned = re.findall(r"[\w.-]+", model_output)
            tools = offered(request, self._tools) or [Tool(name=word) for word in dict.fromkeys(mentioned)]
            _seen.append(model_output)
            found = read(model_output, name, "none", tools, opened=_OPENED)
            calls = [
                Record(id=f"functions.{called}:{i}", type="function", function=Record(name=called, arguments=text))
                for i, (called, text) in enumerate(found.calls)
            ]
            return Record(tools_called=bool(calls), tool_calls=calls, content=found.content or None)

        def extract_reasoning(self, model_output: str, request: Any = None) -> tuple[str | None, str | None]:
            _seen.append(model_output)
            found = read(model_output, "none", name, [], opened=_OPENED)
            return found.reasoning or None, found.content or None

    return Adapter


class _Manager:
    @staticmethod
    def get_tool_parser(name: str) -> type:
        return _parser("tool_parser", name)

    @staticmethod
    def get_reasoning_parser(name: str) -> type:
        return _parser("reasoning_parser", name)


class _Stub(ModuleType):
    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.endswith("Manager"):
            return _Manager
        module = re.search(r"(?:tool_parsers|reasoning)\.(\w+?)(?:_engine)?_(tool|reasoning)_parser$", self.__name__)
        if module and name.endswith("Parser"):
            return _parser(f"{module[2]}_parser", module[1])
        if name == "get_tokenizer":
            return Record.from_pretrained
        return type(name, (Record,), {}) if name[:1].isupper() else Record


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in _STUBBED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.insert(0, _Finder())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Iterator[None]:
    """Note what became of a test, unless it asks for what is not of our kind."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    # Any other exception means that the test uses more than the interface, such as a tokenizer.
    compared = (
        report.outcome == "passed"
        or (_OTHER in str(report.longrepr) and bool(_seen))
        or (call.excinfo is not None and call.excinfo.errisinstance(AssertionError))
    )
    lines = [] if report.outcome != "failed" else str(report.longrepr).splitlines()
    error = next((line for line in lines if line.startswith("E ")), "".join(lines[-1:])).strip()
    if report.when == "setup":
        _seen.clear()
    if report.when == "call" and compared and not _internal.search(error):
        _results.append((Path(str(item.fspath)).stem.removeprefix("test_"), item.name, error))


def pytest_sessionfinish() -> None:
    """Write the results where the command reads them."""
    Path(os.environ["PEER_RESULTS"]).write_text(json.dumps(_results), "utf-8")
