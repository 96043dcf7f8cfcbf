"""The key watch: ends running requests whose API key is no longer valid."""

from api.chat.relay import Relay
from api.keys import Keyring
from shared.protocol.errors import Problem, ProblemKind

_ENDED = Problem(
    kind=ProblemKind.UNAUTHORIZED,
    message="The API key of this request has expired or was revoked, so the request was ended.",
)


class KeyWatch:
    """Fails response streams whose API key was revoked or has expired, those of batches and in the background too."""

    def __init__(self, relay: Relay, keyring: Keyring) -> None:
        self._relay = relay
        self._keyring = keyring

    def check(self) -> None:
        """Look at all open streams. Call it after each refresh of the keyring."""
        streams = self._relay.streams()
        ended = {tenant for tenant in {stream.tenant for stream in streams} if not self._keyring.allows(tenant)}
        for stream in streams:
            if stream.tenant in ended:
                stream.fail(_ENDED)
