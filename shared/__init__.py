"""Code that Vinoqueue's API replicas and workers share: the protocol, access to the store, and the process runtime."""

import sys

from shared.runtime.on_demand import import_on_demand

# redis-py needs it, and all of its cryptography, only to log in with a token.
import_on_demand("jwt")
if sys.version_info < (3, 11, 3):
    from shared.runtime.timeouts import mend_timeouts

    mend_timeouts()
