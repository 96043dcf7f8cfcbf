"""Bare Debian systems: folders that debootstrap fills from the mirror of apt's sources.

Each test sees its own copy. Commands run in namespaces of their own, which end with them, by a user without rights
unless told otherwise, and with the network of the host.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from shared.runtime.processes import die_with_parent
from tests.support.paths import ROOT

SUITES = ("bookworm", "trixie", "forky")
PACKAGES = ("make", "git", "python3-venv", "ca-certificates")
"""What README asks for, and what brings a checkout."""

USER = "user"
HOME = f"/home/{USER}"
_TOOLS = ("apt-get", "debootstrap", "unshare", "mount", "chroot", "runuser")
_SCRIPTS = Path("/usr/share/debootstrap/scripts")
# What the host needs to reach a package index: the certificates are bound, these are passed.
_PASSED = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
_ENTER = """
set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
cd "$2/root"
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
mount --bind /etc/ssl/certs etc/ssl/certs
shift 2
exec chroot . "$@"
"""

_MANAGED = """mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs tmpfs run
shift 2"""
_BOOT = _ENTER.replace("shift 2", _MANAGED)
_SERVICE = """
[Unit]
After=basic.target
Wants=basic.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
WorkingDirectory={home}
ExecStart=/bin/sh -c 'sh -eux /root/script >/root/output 2>&1; echo $? >/root/code'
ExecStopPost=/usr/bin/systemctl poweroff --force --force
"""
_BOOTED = ("env", "-i", "container=test", "/usr/lib/systemd/systemd", "--unit=script.service", "--log-target=null")


def lacking() -> str:
    """Return what this machine lacks for a bare Debian system, or empty."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"needs {', '.join(missing)}: apt-get install debootstrap" if missing else ""


def bootstrap(suite: str, folder: Path, *packages: str) -> Path:
    """Make the bare system ``suite`` in ``folder``, with :data:`PACKAGES` and :data:`USER`; return ``folder``."""
    script = _SCRIPTS / suite
    include = f"--include={','.join((*PACKAGES, *packages))}"
    # Debian's scripts for releases that debootstrap does not know yet are those of sid.
    command = ["debootstrap", "--variant=minbase", include, suite, str(folder), _mirror()]
    done = subprocess.run(
        [*command, str(script if script.exists() else _SCRIPTS / "sid")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
    subprocess.run(["chroot", folder, "useradd", "--create-home", "--shell", "/bin/bash", USER], check=True)
    return folder


def _mirror() -> str:
    """Return the URL of Debian's mirror from apt's sources."""
    own = next(line for line in Path("/etc/os-release").read_text().splitlines() if line.startswith("VERSION_CODENAME"))
    form = ("--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages")
    targets = subprocess.run(["apt-get", "indextargets", *form], capture_output=True, text=True, check=True).stdout
    release = own.partition("=")[2]
    return next(line.split()[0] for line in targets.splitlines() if line.split()[1] == release)


class BareDebian:
    """A copy of a bare system, whose changes are in a folder of the test."""

    def __init__(self, base: Path, folder: Path) -> None:
        """``base`` is the system that :func:`bootstrap` made; nothing in it changes. ``folder`` gets the changes."""
        self._base = base
        self._folder = folder
        for name in ("upper", "work", "root"):
            (folder / name).mkdir(parents=True)

    def command(self, line: str, *, user: str = USER, environment: Mapping[str, str] | None = None) -> list[str]:
        """Return the command line that runs the shell's ``line`` as ``user`` in its home, with ``environment`` only."""
        home = "/root" if user == "root" else HOME
        variables = {name: os.environ[name] for name in _PASSED if name in os.environ} | {
            "HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/sh",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            **(environment or {}),
        }  # fmt: skip
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh"),
            *(str(self._base), str(self._folder), "runuser", "--user", user, "--", "env", "-i"),
            *(f"{name}={value}" for name, value in variables.items()),
            *("sh", "-c", f"cd {shlex.quote(home)} && {line}"),
        ]

    def run(self, line: str, *, user: str = USER, environment: Mapping[str, str] | None = None) -> str:
        """Run ``line`` as in :meth:`command`; return its output. It must succeed."""
        done = subprocess.run(
            self.command(line, user=user, environment=environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            check=False,
            preexec_fn=die_with_parent,
        )
        assert done.returncode == 0, f"{line}: exit code {done.returncode}\n{done.stdout[-8000:]}"
        return done.stdout

    def boot(self, script: str) -> str:
        """Boot the system with its systemd, which must be installed, without a network. Run the lines of ``script`` as
        root, in the home of :data:`USER`, and power off; return their output. They must succeed."""
        unit = self._folder / "upper" / "etc" / "systemd" / "system" / "script.service"
        root = self._folder / "upper" / "root"
        for folder in (unit.parent, root):
            folder.mkdir(parents=True, exist_ok=True)
        unit.write_text(_SERVICE.format(home=HOME), encoding="utf-8")
        (root / "script").write_text(script, encoding="utf-8")
        namespaces = ("--mount", "--pid", "--net", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child")
        command = ("unshare", *namespaces, "sh", "-c", _BOOT, "sh", str(self._base), str(self._folder), *_BOOTED)
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, check=False, preexec_fn=die_with_parent
        )
        output = (root / "output").read_text(errors="replace") if (root / "output").exists() else ""
        assert (root / "code").exists(), f"{done.stdout!r}{done.stderr!r}{output}"
        assert int((root / "code").read_text()) == 0, output[-8000:]
        return output

    def put_checkout(self, name: str = "vinoqueue") -> None:
        """Copy what git has of this repository, with its uncommitted changes, to the folder ``name`` in the home."""
        list_files = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        files = subprocess.run(list_files, cwd=ROOT, capture_output=True, check=True).stdout
        existing = b"\0".join(file for file in files.split(b"\0") if file and (ROOT / os.fsdecode(file)).exists())
        pack = ["tar", "--create", "--null", "--files-from=-"]
        packed = subprocess.run(pack, cwd=ROOT, input=existing, capture_output=True, check=True).stdout
        unpack = f"mkdir -p {shlex.quote(name)} && tar --extract --no-same-owner --directory {shlex.quote(name)}"
        subprocess.run(self.command(unpack), input=packed, check=True)
