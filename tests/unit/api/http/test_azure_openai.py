"""Azure OpenAI's paths, and the model in them."""

import json

import pytest

from api.dialects import dialect_of
from api.dialects.openai import OpenAI, OpenAICompletions
from api.dialects.responses import Responses
from api.http.handler import openai_path


@pytest.mark.parametrize(
    ("sent", "served", "deployment"),
    [
        ("/openai/deployments/m/chat/completions", "/v1/chat/completions", "m"),
        ("/openai/deployments/m/completions", "/v1/completions", "m"),
        ("/openai/deployments/org/m-1.5/chat/completions", "/v1/chat/completions", "org/m-1.5"),
        ("/openai/deployments/chat/completions", "/v1/completions", "chat"),
        ("/openai/v1/chat/completions", "/v1/chat/completions", None),
        ("/openai/v1/responses/resp_1", "/v1/responses/resp_1", None),
        ("/openai/responses", "/v1/responses", None),
        ("/openai/files", "/v1/files", None),
        ("/openai/deployments/m/embeddings", "/v1/deployments/m/embeddings", None),
        ("/openai", "/openai", None),
        ("/v1/chat/completions", "/v1/chat/completions", None),
        ("/v1/openai/v1/models", "/v1/openai/v1/models", None),
    ],
)
def test_paths_of_azure_openai_are_openais(sent: str, served: str, deployment: str | None) -> None:
    assert openai_path(sent) == (served, deployment)


def test_a_deployment_is_the_model_of_the_request() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for body in ({"messages": messages}, {"messages": messages, "model": "other"}):
        dialect = dialect_of("/v1/chat/completions", {}, {}, tuple, deployment="m")
        assert isinstance(dialect, OpenAI)
        assert dialect.parse(json.dumps(body).encode()).model == "m"
    plain = dialect_of("/v1/completions", {}, {}, tuple, deployment="m")
    assert isinstance(plain, OpenAICompletions)
    assert plain.parse(b'{"prompt": "Hi"}').model == "m"
    assert isinstance(dialect_of("/v1/responses", {}, {}, tuple), Responses)
