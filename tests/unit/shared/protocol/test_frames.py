"""What the emitter sends: large results in frames of limited size, and in no journal."""

from shared.protocol.events import Embedded, Finished, FrameOnly, Started, decode_frame, encode_event
from shared.protocol.queue import Emitter, Lease

STARTED = encode_event(Started(worker="w", prompt_tokens=2, fingerprint=""))
FINISHED = encode_event(Finished(0, "stop"))


def sent(jobs: int, size: int) -> tuple[list[bytes], tuple[str, ...]]:
    """Return the arguments of the command that ends jobs with vectors of ``size`` bytes, and the replicas."""
    vectors = FrameOnly(encode_event(Embedded(b"v" * size, 1)))
    leases = [Lease(f"j{number}", 1, "r") for number in range(jobs)]
    command, replicas = Emitter("m", "w").command(
        {lease: [STARTED, vectors, FINISHED] for lease in leases}, ended=leases
    )
    return [part if isinstance(part, bytes) else str(part).encode() for part in command], tuple(replicas)


def test_vectors_are_in_the_frame_and_in_no_journal() -> None:
    arguments, replicas = sent(1, 1000)
    assert replicas == ("r",)
    (frame,) = [one for one in arguments if b"v" * 1000 in one]
    assert [type(entry.event) for entry in decode_frame(frame)] == [Started, Embedded, Finished]
    assert arguments[-3:] == [b"2", STARTED, FINISHED]


def test_frames_are_limited_and_keep_the_order() -> None:
    arguments, replicas = sent(9, 300_000)
    frames = [one for one in arguments if b"vvvv" in one]
    assert replicas == ("r",) * 3 == ("r",) * len(frames)
    assert max(map(len, frames)) < 2**20 + 1000
    entries = [entry for frame in frames for entry in decode_frame(frame)]
    assert [entry.job for entry in entries] == [f"j{number}" for number in range(9) for _ in range(3)]


def test_an_event_that_is_larger_has_a_frame_of_its_own() -> None:
    arguments, _ = sent(2, 2_000_000)
    frames = [decode_frame(one) for one in arguments if b"vvvv" in one]
    assert sum(isinstance(entry.event, Embedded) for frame in frames for entry in frame) == 2
    assert all(sum(isinstance(entry.event, Embedded) for entry in frame) <= 1 for frame in frames)
