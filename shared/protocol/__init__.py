"""The protocol between replicas and workers: requests, events, errors, the registry and the job queue."""
