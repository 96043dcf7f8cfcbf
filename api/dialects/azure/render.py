"""Response bodies of the Azure dialect: chats in OpenAI's form without usage details, and ``/info``."""

from collections.abc import Collection

import msgspec

from api.dialects.azure.errors import error_object
from api.dialects.openai.render import ChatResponseEncoder
from shared.protocol.errors import Problem, ProblemKind, refuse

PROVIDER = "vinoqueue"


class AzureResponseEncoder(ChatResponseEncoder):
    _id_prefix = ""
    _detailed = False

    def failure(self, problem: Problem) -> bytes:
        """Encode an error event, a comment and the terminator.

        Azure's SDK ignores unknown events, so a failed response would look complete. It raises an error with the text
        of any comment, while other clients ignore comments.
        """
        error = msgspec.json.encode({"error": error_object(problem, {})})
        words = " ".join(problem.message.split())
        return b"data: " + error + b"\n\n: error: " + words.encode() + b"\n\n" + self.done


def render_info(model: str, serving: Collection[str]) -> bytes:
    """Describe ``model`` as JSON. Raises :class:`RequestRefused` if no worker serves it."""
    if model not in serving:
        raise refuse(ProblemKind.MODEL_NOT_FOUND, f"The model '{model[:64]}' is not served here.", param="model")
    return msgspec.json.encode({"model_name": model, "model_type": "chat-completion", "model_provider_name": PROVIDER})
