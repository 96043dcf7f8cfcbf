"""Options, the clients of API and store, and progress, for all commands."""
