"""The protocol version: which processes understand each other's jobs while old and new ones run side by side.

A replica announces the version of the jobs that it writes, a worker the versions that it reads. All workers of a model
share one queue, so a replica submits jobs for a model only while all of its workers read them.

Raise :data:`PROTOCOL` when workers of the last release would fail at a new job or serve it wrongly. A new field that
they may ignore needs no new version. After raising it:

- Keep the last release's version in :data:`READABLE` for one release. Workers are upgraded first, and until the
  replicas follow, they serve jobs of both versions.
- The events of a job are read by the replica that wrote it, so they must be those of the job's version.
- Name the change in ``CHANGELOG.md``.

What all versions share in the store, such as queues, leases and the registry, cannot be changed by a new version.
"""

PROTOCOL = 1
"""Version of the jobs that replicas write."""

READABLE: tuple[int, ...] = (1,)
"""Versions of the jobs that workers read."""
