"""The runtime of the worker's subprocesses: the engine, prompt, image and grammar processes.

:mod:`~worker.subprocess.process` is the supervisor's side, :mod:`~worker.subprocess.channel` the subprocess's.
:mod:`~worker.subprocess.service` and :mod:`~worker.subprocess.serve` are the two sides of a subprocess that replies to
calls, which has deadlines and is replaced when it hangs or crashes.
"""
