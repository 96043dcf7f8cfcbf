"""The table of engines."""

from importlib.util import find_spec
from pkgutil import resolve_name
from typing import get_args

from shared.runtime.settings import EngineSettings
from worker.engine.backends import BACKENDS, EMBEDDING


def test_every_engine_that_can_be_chosen_is_in_the_table() -> None:
    assert {*BACKENDS} - {EMBEDDING} == set(get_args(EngineSettings.model_fields["engine"].annotation))


def test_the_names_in_the_table_exist() -> None:
    for backend in BACKENDS.values():
        assert callable(resolve_name(backend.engine))
        assert find_spec(backend.prompts)
        assert not backend.prompt_maker or callable(resolve_name(backend.prompt_maker))
