"""The engine process, whatever engine runs in it."""
