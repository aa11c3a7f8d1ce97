"""The root file system of Docker sandboxes, made without a registry.

By default it is packed from the packages of this machine (Debian and what derives from it): the shell, the core
utilities, Python and git with everything they depend on, some 90 MB. Any other image goes by its name, or as a tarball
of a root file system.
"""

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from agar.errors import UnsupportedPlatformError

_WANTED = """
    bash coreutils dash diffutils findutils git grep gzip hostname libc-bin libpython3-stdlib procps python3-minimal
    sed tar
"""
PACKAGES = tuple(_WANTED.split())
_LEFT_OUT = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/", "/usr/share/lintian/")
_QUERY = "${Package}\t${db:Status-Status}\t${Version}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
_QUERY_TIMEOUT_S = 60.0
_FORM = "1"  # of what is packed; another one makes another image


class HostTree:
    """The part of this machine's file system that belongs to a set of packages."""

    def __init__(self, packages: Iterable[str] = PACKAGES) -> None:
        """Find out which packages are needed.

        Args:
            packages: what is wanted; all that they depend on comes along. One that is not installed is left out.

        Raises:
            UnsupportedPlatformError: this machine has no dpkg.
        """
        versions, needs, provided = _installed()
        self.packages = _closure(packages, needs, provided)
        known = "\n".join(f"{name} {versions[name]}" for name in self.packages)
        self.digest = hashlib.sha256(f"{_FORM}\n{known}".encode()).hexdigest()[:16]
        """Tells trees apart: the packages and their versions."""

    def write(self, target: IO[bytes]) -> int:
        """Write it as an uncompressed tarball; returns the number of files."""
        count = 0
        with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for path in self._paths():
                try:
                    archive.add(path, arcname=path.lstrip("/"), recursive=False, filter=_owned_by_root)
                except FileNotFoundError:  # a package may list what was removed since
                    continue
                count += 1
            for name, text in _OWN_FILES.items():
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(text), 0o644
                archive.addfile(member, io.BytesIO(text.encode()))
            for name in ("work", "tmp", "proc", "sys", "dev", "run"):
                member = tarfile.TarInfo(name)
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
        return count

    def _paths(self) -> list[str]:
        """Every file and its folders by real place, parents first: `/bin/sh` lies in `/usr/bin` on a merged system."""
        listed = _query("dpkg-query", "--listfiles", *self.packages).splitlines()
        paths = {path for path in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32") if os.path.lexists(path)}
        paths.add("/etc/alternatives")
        alternatives = [str(path) for path in Path("/etc/alternatives").glob("*")]
        for path in (*listed, *alternatives):
            if not path.startswith("/") or path == "/." or path.startswith(_LEFT_OUT):
                continue
            folder, name = os.path.split(path)
            real = os.path.join(os.path.realpath(folder), name)
            if real.startswith(("/usr/", "/etc/alternatives/")) or real == "/usr":
                paths.add(real)
                while (real := os.path.dirname(real)) != "/":
                    paths.add(real)
        paths.discard("/etc")
        return sorted(paths)


_OWN_FILES: Mapping[str, str] = {
    "etc/passwd": "root:x:0:0::/:/bin/false\nagar:x:1000:1000::/work:/bin/sh\n",
    "etc/group": "root:x:0:\nagar:x:1000:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode &= 0o1777  # nothing is set-user-id
    return member


def _query(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S).stdout
    except FileNotFoundError as error:
        raise UnsupportedPlatformError(
            "a Docker image can be packed from this machine's packages only where there is dpkg: set `image` to the "
            "name of an image that the engine has, or to the tarball of a root file system"
        ) from error


def _installed() -> tuple[dict[str, str], dict[str, list[list[str]]], dict[str, str]]:
    """Installed packages: their versions, what each needs (alternatives of each need), who provides a virtual one."""
    versions: dict[str, str] = {}
    needs: dict[str, list[list[str]]] = {}
    provided: dict[str, str] = {}
    for line in _query("dpkg-query", "--show", f"--showformat={_QUERY}").splitlines():
        package, status, version, depends, provides = line.split("\t")
        if status != "installed":
            continue
        versions[package] = version
        needs[package] = [[_name(choice) for choice in need.split("|")] for need in depends.split(",") if need.strip()]
        for virtual in provides.split(","):
            if virtual.strip():
                provided.setdefault(_name(virtual), package)
    return versions, needs, provided


def _closure(wanted: Iterable[str], needs: Mapping[str, list[list[str]]], provided: Mapping[str, str]) -> list[str]:
    found: set[str] = set()
    queue = list(wanted)
    while queue:
        asked = queue.pop()
        package = asked if asked in needs else provided.get(asked)
        if package is None or package in found:
            continue
        found.add(package)
        for choices in needs[package]:
            queue += [choice for choice in choices if choice in needs or choice in provided][:1]
    return sorted(found)


def _name(relation: str) -> str:
    """`libc6:amd64 (>= 2.14)` is `libc6`."""
    return relation.split("(")[0].split(":")[0].strip()
