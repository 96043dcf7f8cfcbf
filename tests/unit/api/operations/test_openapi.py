"""The OpenAPI document: it covers every route, and is whole."""

import json
import re
from functools import cache
from typing import Any

from api.app import create_app
from api.build import HANDLERS, build, openapi_document
from api.dialects.azure.parse import SERVED as AZURE
from api.http.routes import routes_of
from shared.redis.client import connect
from shared.runtime.settings import ApiSettings
from tests.support.paths import ROOT
from tools.docs.http_table import inserted


@cache
def whole() -> Any:
    return json.loads(openapi_document())


def test_every_route_is_described() -> None:
    app = create_app(build(connect("redis://unused"), ApiSettings(), "r"))
    routes = {
        (method.lower(), re.sub(r"<[^>]*>", "{}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
        if method not in ("HEAD", "OPTIONS")
    }
    described = {
        (method, re.sub(r"{[^}]*}", "{}", path))
        for path, operations in whole()["paths"].items()
        for method in operations
    }
    assert described == routes


def test_every_reference_leads_somewhere() -> None:
    names = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(whole())))
    assert names
    assert names <= whole()["components"]["schemas"].keys()


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for operations in whole()["paths"].values() for operation in operations.values()]
    assert len(names) == len(set(names))


def test_each_interface_shows_its_own_fields() -> None:
    schemas = whole()["components"]["schemas"]
    assert "best_of" in schemas["ModelServerChatRequest"]["properties"]
    assert "best_of" not in schemas["ChatCompletionRequest"]["properties"]
    assert schemas["AzureChatRequest"]["properties"].keys() == AZURE
    assert schemas["AzureChatRequest"]["required"] == ["messages"]


def test_schemas_of_the_same_name_are_kept_apart() -> None:
    schemas = whole()["components"]["schemas"]
    bodies = [route.body for handler in HANDLERS for route, _ in routes_of(handler) if route.body is not None]
    for body in bodies:
        owner = body.name or body.model.__name__
        inner = body.model.model_json_schema(ref_template="#/components/schemas/{model}").get("$defs", {})
        for name, schema in inner.items():
            found = schemas.get(f"{owner}{name}", schemas[name])
            assert (found["type"], found["properties"].keys()) == (schema["type"], schema["properties"].keys())


def test_the_page_of_the_http_api_is_current() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    assert inserted(page) == page, "run 'make docs'"
