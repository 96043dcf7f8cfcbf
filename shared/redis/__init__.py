"""Everything that speaks to Redis or Valkey: connections, commands, scripts and keys."""
