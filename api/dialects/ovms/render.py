"""Response encoders of the ``/v3`` dialect: OpenAI's form without ``system_fingerprint`` and usage details.

The reference has no ``id``. It is included because OpenAI's clients require one.
"""

from api.dialects.openai.completions_render import CompletionResponseEncoder
from api.dialects.openai.render import ChatResponseEncoder


class ModelServerResponseEncoder(ChatResponseEncoder):
    _fingerprinted = _detailed = False

    def opening(self, choice: int, prompt_tokens: int = 0, cached_tokens: int = 0) -> bytes:
        super().opening(choice)
        return self._chunk(choice, {"role": "assistant", "content": None})


class ModelServerCompletionResponseEncoder(CompletionResponseEncoder):
    _fingerprinted = _detailed = False
