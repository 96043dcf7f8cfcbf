"""Code that API replicas and workers share: the protocol, access to the store, and the process runtime."""

from shared.runtime.on_demand import import_on_demand

# redis-py needs it, and all of its cryptography, only to log in with a token.
import_on_demand("jwt")
