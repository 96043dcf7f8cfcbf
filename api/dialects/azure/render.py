"""Response encoder of the Azure dialect: OpenAI's form without usage details."""

import msgspec

from api.dialects.azure.errors import error_object
from api.dialects.openai.render import ChatResponseEncoder
from shared.protocol.errors import Problem


class AzureResponseEncoder(ChatResponseEncoder):
    """An :class:`api.dialects.base.interface.ResponseEncoder` for one chat request."""

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
