"""Fields of vLLM, llama.cpp and OpenVINO Model Server of which only the neutral value is served.

Clients of these servers send them with their defaults. At such a value nothing can go wrong; at another one, the client
would get something else than it asked for.
"""

from typing import Annotated, Any

from api.dialects.base.fields import Strict
from api.dialects.base.unsupported import Ignored, Refused

NOT_HERE = "The engine does not support it."


class NeutralFields(Strict):
    """Those of all requests. ``num_ctx`` and ``keep_alive`` are Ollama's: the operator decides on both."""

    detokenize: Annotated[bool | None, Refused("Responses are always text.", neutral=(True,))] = None
    early_stopping: Annotated[bool | str | None, Refused(NOT_HERE, neutral=(False,))] = None
    keep_alive: Annotated[float | str | None, Ignored()] = None
    length_penalty: Annotated[
        float | None, Refused("Beam searches are served under /v3 ('best_of').", neutral=(0.0, 1.0))
    ] = None
    logits_processors: Annotated[list[Any] | None, Refused(NOT_HERE)] = None
    mm_processor_kwargs: Annotated[
        dict[str, Any] | None, Refused("Images are prepared as the model needs them.", neutral=({},))
    ] = None
    num_ctx: Annotated[int | None, Ignored()] = None
    priority: Annotated[int | None, Refused("Use 'service_tier'.", neutral=(0,))] = None
    return_tokens_as_token_ids: Annotated[bool | None, Refused("Use 'return_token_ids'.", neutral=(False,))] = None
    spaces_between_special_tokens: Annotated[bool | None, Refused(NOT_HERE, neutral=(True,))] = None
    truncate_prompt_tokens: Annotated[int | None, Refused("Prompts are never truncated.", neutral=(-1,))] = None
    use_beam_search: Annotated[
        bool | None, Refused("Beam searches are served under /v3 ('best_of').", neutral=(False,))
    ] = None


class NeutralChatFields(NeutralFields):
    """Those of chats."""

    add_special_tokens: Annotated[bool | None, Refused("The chat template decides on it.", neutral=(False,))] = None
    best_of: Annotated[int | None, Refused("Use 'n'.", neutral=(1,))] = None
    chat_template: Annotated[str | None, Refused("The model's operator sets the chat template.")] = None
    documents: Annotated[list[Any] | None, Refused("Put documents into messages.")] = None
    echo: Annotated[bool | None, Refused("Completions can repeat their prompt.", neutral=(False,))] = None
    include_reasoning: Annotated[
        bool | None, Refused("Reasoning is in a field of its own; clients can leave it out.", neutral=(True,))
    ] = None


class NeutralCompletionFields(NeutralFields):
    """Those of plain completions."""

    add_special_tokens: Annotated[bool | None, Refused(NOT_HERE, neutral=(True,))] = None
