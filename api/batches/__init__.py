"""Batches: files of requests that are served when nothing else waits.

A batch is fed to the queue by one replica at a time, which holds a lease on it. See
``docs/decisions/0020-batches-survive-by-commits.md``.
"""
