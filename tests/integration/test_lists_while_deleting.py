"""Each item of a list is deleted on the way through its pages, by the official SDK: the pages go on."""

import io
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import openai
import pytest

from tests.support.fleet import PATIENT, fleet

ITEMS = 7
"""Items of a list; its pages have 2."""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    with fleet(tmp_path_factory.mktemp("lists"), lease=PATIENT) as running:
        running.worker()
        secret = running.key("create", "--scope", "admin", "--name", "caller")
        running.api()
        running.until(lambda: running.status("/ready") == 200, "readiness")
        yield running.client().with_options(api_key=secret, admin_api_key=secret)


def chat(client: openai.OpenAI, text: str) -> str:
    return client.chat.completions.create(
        model="sim", messages=[{"role": "user", "content": text}], max_tokens=1, store=True
    ).id


def upload(client: openai.OpenAI, text: str) -> str:
    return client.files.create(file=(f"{text}.jsonl", io.BytesIO(text.encode())), purpose="batch").id


def completions(client: openai.OpenAI) -> tuple[Callable[[str], str], Any, Callable[[str], object]]:
    resource = client.chat.completions
    return lambda text: chat(client, text), resource.list, resource.delete


def files(client: openai.OpenAI) -> tuple[Callable[[str], str], Any, Callable[[str], object]]:
    return lambda text: upload(client, text), client.files.list, client.files.delete


def admin_keys(client: openai.OpenAI) -> tuple[Callable[[str], str], Any, Callable[[str], object]]:
    resource = client.admin.organization.admin_api_keys
    return lambda text: resource.create(name=text).id, resource.list, resource.delete


def projects(client: openai.OpenAI) -> tuple[Callable[[str], str], Any, Callable[[str], object]]:
    resource = client.admin.organization.projects
    return lambda text: resource.create(name=text).id, resource.list, resource.archive


@pytest.mark.parametrize(
    ("resource", "order"),
    [*product((completions, files, admin_keys), ({"order": "asc"}, {"order": "desc"})), (projects, {})],
)
def test_for_each_of_the_list_delete_it(
    admin: openai.OpenAI,
    resource: Callable[[openai.OpenAI], tuple[Callable[[str], str], Any, Callable[[str], object]]],
    order: dict[str, str],
) -> None:
    create, items, delete = resource(admin)
    made = [create(f"item {number}") for number in range(ITEMS)]
    seen = []
    for one in items(limit=2, **order):
        if one.id in made:
            seen.append(one.id)
            delete(one.id)
    assert sorted(seen) == sorted(made)
    assert not {one.id for one in items()} & set(made)


def test_an_id_that_ended_no_page_is_no_cursor(admin: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="Invalid 'after'"):
        admin.files.list(after="file-" + "0" * 32)
