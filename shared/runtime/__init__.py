"""The runtime of every process: settings, logs, tasks and the event loop."""
