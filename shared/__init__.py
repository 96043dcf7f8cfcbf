"""Code that API replicas and workers share: the protocol, access to the store, and the process runtime."""
