"""Downloads models from the Hugging Face hub with ``huggingface_hub``, into its own cache.

``HF_TOKEN``, ``HF_ENDPOINT``, ``HF_HOME`` and ``HF_HUB_OFFLINE`` are honoured. A repository can be served if it holds
an OpenVINO model at its root, or a GGUF file. ``huggingface_hub`` is imported on demand, because the import takes a
second. Its file locks make one process download a file, and the others that share the cache wait.
"""

import hashlib
import shutil
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from worker.model.files import LANGUAGE_MODEL
from worker.model.source import ModelError
from worker.model.split import part_names, parts

_IR_MODELS = {"openvino_model.xml", LANGUAGE_MODEL}
"""An IR folder has one of these, depending on whether it takes images."""
_IR_PATTERNS = ["openvino_*.xml", "openvino_*.bin", "*.json", "*.jinja", "*.npy"]
_MAIN = "main"
_LISTING_TIMEOUT = 30.0
"""Timeout in seconds for listing the files of a repository."""


class Download(NamedTuple):
    """A download that begins. ``size`` is that of the missing files in bytes."""

    folder: Path
    size: int
    present: int
    """Bytes in ``folder`` before the download."""

    @property
    def done(self) -> int:
        """The bytes that have arrived."""
        return min(max(_folder_bytes(self.folder) - self.present, 0), self.size)


class CachedSource(msgspec.Struct, frozen=True):
    """A model in the Hugging Face cache. Its string form is a source for ``--model``."""

    repository: str
    revision: str | None
    file: str | None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        file = f":{self.file}" if self.file else ""
        return self.repository + revision + file


def download(
    repository: str,
    *,
    revision: str | None,
    file: str | None,
    on_download: Callable[[Download], None] | None = None,
) -> Path:
    """Return the repository's IR folder or GGUF file, downloading what is not cached.

    Without a network, the cached files are used. Raises :class:`ModelError` when the repository, the revision or the
    file does not exist or is not accessible, when the file is ambiguous, when the disk has too little room, and when
    what has arrived is damaged. ``on_download`` is called before anything is downloaded.
    """
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    label = _label(repository, revision)
    try:
        # Not list_repo_files(), which retries for half a minute without a network.
        found = HfApi().model_info(repository, revision=revision, files_metadata=True, timeout=_LISTING_TIMEOUT)
        listing = {entry.rfilename: entry for entry in found.siblings or []}
        chosen = _choose(label, listing, file)
        folder = _cache_folder(repository)
        wanted = _matching(listing) if chosen is None else part_names(chosen)
        missing = [name for name in wanted if not (folder / "snapshots" / str(found.sha) / name).exists()]
        size = sum(listing[name].size or 0 for name in missing)
        if missing:
            _check_room(label, folder, size)
            if on_download is not None:
                on_download(Download(folder / "blobs", size, _folder_bytes(folder / "blobs")))
        if chosen is None:
            location = Path(snapshot_download(repository, revision=revision, allow_patterns=_IR_PATTERNS))
        else:
            location, *_ = [Path(hf_hub_download(repository, name, revision=revision)) for name in wanted]
        for name in missing:
            if (large := listing[name].lfs) is not None:
                file_name = PurePosixPath(name).name
                _verify(location / name if chosen is None else location.with_name(file_name), large.sha256)
        return location
    except ModelError:
        raise
    except GatedRepoError as error:
        raise ModelError(
            f"{label} is gated on the hub: accept its terms on its page there, and set HF_TOKEN to your token."
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(f"The hub has no revision '{revision}' of {repository}: check what follows '@'.") from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"The hub has no repository {repository}, or it is private. Check the id; for a private one set HF_TOKEN."
        ) from error
    except Exception as error:
        # No network, a server error, a full disk: huggingface_hub passes on the errors of its HTTP library, which
        # differs between versions. A cached model must remain usable in any case.
        if _cached_snapshot(repository, revision) is not None:
            return cached(repository, revision=revision, file=file)
        raise ModelError(
            f"{label} can't be fetched from the hub, and the cache does not hold it: {error}. "
            "Check the network, HF_ENDPOINT and HF_HUB_OFFLINE."
        ) from error


def _cache_folder(repository: str) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    return Path(HF_HUB_CACHE, repo_folder_name(repo_id=repository, repo_type="model"))


def _check_room(label: str, folder: Path, size: int) -> None:
    """Raise :class:`ModelError` if the disk of ``folder``, in the cache, has no room for ``size`` bytes."""
    free = shutil.disk_usage(next(parent for parent in folder.parents if parent.exists())).free
    if size > free:
        raise ModelError(
            f"{label} needs {size / 1e9:.1f} GB more in {folder.parent}, where {free / 1e9:.1f} GB are free. Free "
            "some, or set HF_HOME to a folder on another disk."
        )


def _folder_bytes(folder: Path) -> int:
    """Return the size of the files in ``folder``, which downloads may add and rename meanwhile."""
    total = 0
    for file in folder.glob("*"):
        with suppress(OSError):
            total += file.stat().st_size
    return total


def _verify(file: Path, digest: str) -> None:
    """Compare a file with its SHA-256 digest. Raises :class:`ModelError` and removes it if they differ."""
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != digest:
        file.resolve().unlink()
        file.unlink()
        raise ModelError(f"{file.name} arrived damaged and was removed. It is downloaded again at the next start.")


def cached(repository: str, *, revision: str | None, file: str | None) -> Path:
    """Return the repository's IR folder or GGUF file from the cache alone. Raises :class:`ModelError`."""
    label = _label(repository, revision)
    folder = _cached_snapshot(repository, revision)
    if folder is None:
        raise ModelError(f"{label} is not in the hub's cache. Fetch it with: vinoqueue model pull {label}")
    chosen = _choose(label, _relative_files(folder), file)
    return folder if chosen is None else folder / chosen


def remove(repository: str, *, revision: str | None, file: str | None) -> Path:
    """Remove the repository's IR folder or GGUF file from the cache; return its path. Raises :class:`ModelError`."""
    from huggingface_hub import scan_cache_dir

    location = cached(repository, revision=revision, file=file)
    folder = _cached_snapshot(repository, revision)
    assert folder is not None
    names = _relative_files(folder)
    if file is None or (_gguf_files(names) == [file] and not _IR_MODELS.intersection(names)):
        cache = scan_cache_dir()
        own = {repo for repo in cache.repos if repo.repo_type == "model" and repo.repo_id == repository}
        # A copy of a repository on the hub has commits of the same names.
        replace(cache, repos=frozenset(own)).delete_revisions(folder.name).execute()
    else:
        for part in parts(location):
            blob = part.resolve()
            part.unlink()
            if all(other.resolve() != blob for other in folder.parent.rglob("*")):  # equal files share a blob
                blob.unlink(missing_ok=True)
    return location


def cached_models() -> list[tuple[CachedSource, Path]]:
    """Return the servable models in the Hugging Face cache, sorted by source."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except (CacheNotFound, RuntimeError):  # a user without a home directory
        return []
    found = []
    for repository in repositories:
        if repository.repo_type != "model":
            continue
        for snapshot in repository.revisions:
            revision = None if _MAIN in snapshot.refs else min(snapshot.refs, default=snapshot.commit_hash)
            names = _relative_files(snapshot.snapshot_path)
            if _IR_MODELS.intersection(names):
                found.append((CachedSource(repository.repo_id, revision, None), snapshot.snapshot_path))
            found += [
                (CachedSource(repository.repo_id, revision, name), snapshot.snapshot_path / name)
                for name in _gguf_files(names)
                if not {*part_names(name)}.difference(names)
            ]
    return sorted(found, key=lambda entry: str(entry[0]))


def _choose(label: str, names: Iterable[str], file: str | None) -> str | None:
    """Return the GGUF file to use, or None for the IR folder."""
    available = set(names)
    ggufs = _gguf_files(available)
    if file is not None:
        file = part_names(file)[0]
        if file not in ggufs:
            raise ModelError(f"{label} has no file '{file}'. Its GGUF files: {', '.join(ggufs) or 'none'}.")
        return _with_all_parts(label, available, file)
    if _IR_MODELS & available:
        return None
    if len(ggufs) > 1:
        raise ModelError(f"{label} holds several GGUF files; name one as {label}:FILE. Files: {', '.join(ggufs)}.")
    if not ggufs:
        raise ModelError(
            f"{label} holds neither openvino_model.xml nor a GGUF file. Choose a repository with an OpenVINO or GGUF "
            "export."
        )
    return _with_all_parts(label, available, ggufs[0])


def _with_all_parts(label: str, available: Collection[str], file: str) -> str:
    if missing := [name for name in part_names(file) if name not in available]:
        raise ModelError(
            f"{label} has only some of the files into which {file} is split: {', '.join(missing)} missing."
        )
    return file


def _matching(names: Iterable[str]) -> list[str]:
    """Return those of ``names`` that belong to an IR folder, as the hub's library chooses them."""
    return [name for name in names if any(fnmatch(name, pattern) for pattern in _IR_PATTERNS)]


def _cached_snapshot(repository: str, revision: str | None) -> Path | None:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    wanted = revision or _MAIN
    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return None
    for entry in repositories:
        if entry.repo_type == "model" and entry.repo_id == repository:
            for snapshot in entry.revisions:
                if wanted in snapshot.refs or snapshot.commit_hash.startswith(wanted):
                    return snapshot.snapshot_path
    return None


def _relative_files(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _gguf_files(names: Iterable[str]) -> list[str]:
    """Return the GGUF files; of split ones, the first parts."""
    return sorted({part_names(name)[0] for name in names if PurePosixPath(name).suffix == ".gguf"})


def _label(repository: str, revision: str | None) -> str:
    return f"{repository}@{revision}" if revision else repository
