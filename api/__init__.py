"""Vinoqueue's API replica: HTTP on one side, the queue on the other. Never imports OpenVINO or the worker."""
