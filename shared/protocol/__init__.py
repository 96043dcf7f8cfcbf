"""What replicas and workers exchange: requests, events, errors, the registry and the job queue."""
