"""Access to Redis or Valkey: connections, commands, scripts and keys."""
