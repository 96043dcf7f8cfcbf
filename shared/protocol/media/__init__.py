"""The media store: files that clients send with their requests, by digest, outside the queue.

A request holds its files from before it is queued until it has ended. A file is stored once for all requests that hold
it, and deleted with its last hold. Holds of replicas that have died expire.
"""

from shared.protocol.media.store import MediaFull, MediaStore, digest_of

__all__ = ["MediaFull", "MediaStore", "digest_of"]
