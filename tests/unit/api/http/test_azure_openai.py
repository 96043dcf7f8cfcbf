"""Azure OpenAI's paths, and the model in them."""

import json

import pytest

from api.dialects.base.interface import Asked
from api.dialects.openai import OpenAI, OpenAICompletions
from api.http.application import openai_path


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
        ("/openai/deployments/m/embeddings", "/v1/embeddings", "m"),
        ("/openai", "/openai", None),
        ("/v1/chat/completions", "/v1/chat/completions", None),
        ("/v1/openai/v1/models", "/v1/openai/v1/models", None),
        ("/v3/v1/chat/completions", "/v3/chat/completions", None),
    ],
)
def test_paths_of_azure_openai_are_openais(sent: str, served: str, deployment: str | None) -> None:
    assert openai_path(sent) == (served, deployment)


@pytest.mark.parametrize(
    ("sent", "served"),
    [
        ("/chat/completions", "/v1/chat/completions"),
        ("/models/chat/completions", "/v1/chat/completions"),
        ("/chat/completions/chatcmpl-1/messages", "/v1/chat/completions/chatcmpl-1/messages"),
        ("/completions", "/v1/completions"),
        ("/responses/resp_1", "/v1/responses/resp_1"),
        ("/embeddings", "/v1/embeddings"),
        ("/models/embeddings", "/v1/embeddings"),
        ("/models", "/v1/models"),
        ("/models/org/m", "/v1/models/org/m"),
        ("/files", "/v1/files"),
        ("/batches/batch_1", "/v1/batches/batch_1"),
        ("/info", "/info"),
        ("/models/info", "/models/info"),
        ("/models/load", "/models/load"),
        ("/modelsx", "/modelsx"),
        ("/metrics", "/metrics"),
    ],
)
def test_paths_without_v1_are_openais_unless_they_name_a_version_of_azures_api(sent: str, served: str) -> None:
    assert openai_path(sent) == (served, None)
    assert openai_path(sent, versioned=True) == (sent, None)


def test_a_deployment_is_the_model_of_the_request() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for body in ({"messages": messages}, {"messages": messages, "model": "other"}):
        assert OpenAI(Asked(deployment="m")).parse(json.dumps(body).encode()).model == "m"
    assert OpenAICompletions(Asked(deployment="m")).parse(b'{"prompt": "Hi"}').model == "m"
