"""What every process needs: settings, logs, tasks and the event loop."""
