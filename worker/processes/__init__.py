"""The runtime of the worker's subprocesses: the engine, prompt, image and grammar processes.

:mod:`~worker.processes.child` is the supervisor's side, :mod:`~worker.processes.channel` the subprocess's.
:mod:`~worker.processes.service` and :mod:`~worker.processes.channel` are the two sides of a subprocess that replies to
calls, which has deadlines and is replaced when it hangs or crashes.
"""
