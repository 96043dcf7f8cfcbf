"""``vinoqueue up``, ``api``, ``worker`` and ``node``."""
