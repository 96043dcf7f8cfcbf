"""What the current request may do: use models, and send forms."""

from quart import request

from api.http.exchange import current_exchange
from api.replica import current_replica
from shared.protocol.registry import ModelInfo


def is_foreign() -> bool:
    """Return whether the current request comes from a web page of another origin that is not allowed."""
    origin = request.headers.get("origin")
    own = origin is None or origin.partition("://")[2] == request.headers.get("host")
    return not own and not current_replica().cross_origin.allows(origin)


def visible_models() -> dict[str, ModelInfo]:
    """Return the served models that the current request's key may use, by name."""
    fleet = current_replica().directory.fleet
    return {name: info for name, info in fleet.listed().items() if may_use(name)}


def may_use(name: str) -> bool:
    """Return whether the current request's key allows the model ``name``, by this name or by the model's own."""
    key = current_exchange().key
    return key is None or key.may_use(name) or key.may_use(current_replica().directory.fleet.own_name(name))
