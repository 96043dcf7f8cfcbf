"""Azure OpenAI's paths: other addresses of OpenAI's API.

``AzureOpenAI`` clients send chats and completions to ``/openai/deployments/DEPLOYMENT/…``, all else to ``/openai/…``,
and those of Azure's API without versions to ``/openai/v1/…``. The parameter ``api-version`` has no effect.
"""

import re

_PATH = re.compile(r"/openai(?:/v1(?=/)|/deployments/(?P<deployment>.+?)(?=/(?:chat/)?completions$))?(?P<rest>/.+)")


def openai_path(path: str) -> tuple[str, str | None]:
    """Return the path of OpenAI's API that ``path`` means, and the deployment in it: the name of a model.

    Other paths are returned as they are.
    """
    found = _PATH.fullmatch(path)
    return (f"/v1{found['rest']}", found["deployment"]) if found else (path, None)
