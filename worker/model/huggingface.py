"""Downloads models from the Hugging Face hub with ``huggingface_hub``, into its own cache.

``HF_TOKEN``, ``HF_ENDPOINT``, ``HF_HOME`` and ``HF_HUB_OFFLINE`` are honoured. A repository can be served if it holds
an OpenVINO model at its root, or a GGUF file. ``huggingface_hub`` is imported on demand, because the import takes a
second.
"""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from worker.model.files import LANGUAGE_MODEL
from worker.model.source import ModelError

_IR_MODELS = {"openvino_model.xml", LANGUAGE_MODEL}
"""An IR folder has one of these, depending on whether it takes images."""
_IR_PATTERNS = ["openvino_*.xml", "openvino_*.bin", "*.json", "*.jinja", "*.npy"]
_MAIN = "main"
_LISTING_TIMEOUT = 30.0
"""Timeout in seconds for listing the files of a repository."""


class CachedSource(msgspec.Struct, frozen=True):
    """A model in the Hugging Face cache. Its string form is a source for ``--model``."""

    repository: str
    revision: str | None
    file: str | None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        file = f":{self.file}" if self.file else ""
        return self.repository + revision + file


def download(repository: str, *, revision: str | None, file: str | None) -> Path:
    """Return the repository's IR folder or GGUF file, downloading what is not cached.

    Without a network, the cached files are used. Raises :class:`ModelError` when the repository, the revision or the
    file does not exist or is not accessible, or when the file is ambiguous.
    """
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    label = _label(repository, revision)
    try:
        # Not list_repo_files(), which retries for half a minute without a network.
        listing = HfApi().model_info(repository, revision=revision, timeout=_LISTING_TIMEOUT).siblings or []
        chosen = _choose(label, [entry.rfilename for entry in listing], file)
        if chosen is None:
            return Path(snapshot_download(repository, revision=revision, allow_patterns=_IR_PATTERNS))
        return Path(hf_hub_download(repository, chosen, revision=revision))
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
            f"{label} can't be fetched from the hub, and the cache does not hold it: {error} "
            "Check the network, HF_ENDPOINT and HF_HUB_OFFLINE."
        ) from error


def cached(repository: str, *, revision: str | None, file: str | None) -> Path:
    """Return the repository's IR folder or GGUF file from the cache alone. Raises :class:`ModelError`."""
    label = _label(repository, revision)
    folder = _cached_snapshot(repository, revision)
    if folder is None:
        raise ModelError(f"{label} is not in the hub's cache. Fetch it with: vinoqueue model pull {label}")
    chosen = _choose(label, _relative_files(folder), file)
    return folder if chosen is None else folder / chosen


def cached_models() -> list[tuple[CachedSource, Path]]:
    """Return the servable models in the Hugging Face cache, sorted by source."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
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
            ]
    return sorted(found, key=lambda entry: str(entry[0]))


def _choose(label: str, names: Iterable[str], file: str | None) -> str | None:
    """Return the GGUF file to use, or None for the IR folder."""
    available = set(names)
    ggufs = _gguf_files(available)
    if file is not None:
        if file not in available:
            raise ModelError(f"{label} has no file '{file}'. Its GGUF files: {', '.join(ggufs) or 'none'}.")
        return file
    if _IR_MODELS & available:
        return None
    if len(ggufs) > 1:
        raise ModelError(f"{label} holds several GGUF files; name one as {label}:FILE. Files: {', '.join(ggufs)}.")
    if not ggufs:
        raise ModelError(
            f"{label} holds neither openvino_model.xml nor a GGUF file. Choose a repository with an OpenVINO or GGUF "
            "export."
        )
    return ggufs[0]


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
    return sorted(name for name in names if PurePosixPath(name).suffix == ".gguf")


def _label(repository: str, revision: str | None) -> str:
    return f"{repository}@{revision}" if revision else repository
