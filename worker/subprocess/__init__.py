"""The runtime of the worker's subprocesses: the engine, prompt, image and grammar processes.

:mod:`~worker.subprocess.process` is the supervisor's side, :mod:`~worker.subprocess.channel` the subprocess's.
:mod:`~worker.subprocess.calls` adds calls with deadlines and the replacement of hung and crashed subprocesses.
"""
