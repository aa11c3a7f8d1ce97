"""The system calls that a sandbox may not make.

Namespaces alone leave kernel surface that ordinary programs never need: vsock reaches the hypervisor, io_uring and
AF_ALG have long records of kernel bugs, keyrings are not namespaced, and a new user namespace brings back most of what
dropping capabilities took away. The filter is a deny list over a default of allow, because the code inside is ordinary
(shells, compilers, interpreters). Calls that programs probe for and can do without answer ENOSYS, the others EPERM.
System calls of another word size are killed by libseccomp's default for foreign architectures.
"""

import errno
import os
from contextlib import suppress
from functools import lru_cache
from types import ModuleType

from agar.errors import MissingExtraError, UnsupportedPlatformError, to_install

_REFUSED = """
    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp perf_event_open bpf userfaultfd
    keyctl add_key request_key unshare setns mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig
    fsmount fspick mount_setattr name_to_handle_at open_by_handle_at fanotify_init quotactl quotactl_fd acct syslog
    kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff iopl ioperm modify_ldt
    settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname vhangup lookup_dcookie nfsservctl
    mbind set_mempolicy migrate_pages move_pages uselib ustat sysfs _sysctl
"""
_ABSENT = "io_uring_setup io_uring_enter io_uring_register clone3 memfd_secret"
_UNACCOUNTED = "shmget msgget semget memfd_create"
FAMILIES = {1: "unix", 2: "inet", 10: "inet6", 16: "netlink"}
"""Socket families that may be used."""
NETLINK = 16
NEW_NAMESPACES = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000
"""Flags of `clone` that may not be used."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FIRST_UNKNOWN, _LAST_UNKNOWN = 451, 640  # numbers that libseccomp 2.5 has no names for; shared by all 64-bit machines


@lru_cache(maxsize=2)
def program(*, memory_accounted: bool = True) -> bytes:
    """Compile the filter for this machine.

    Args:
        memory_accounted: False where no cgroup counts memory; then calls that take memory outside a process's address
            space (System V shared memory, memfd) are refused too, since only the address space is limited.

    Returns:
        BPF instructions, as `bwrap --seccomp` takes them.

    Raises:
        MissingExtraError: pyseccomp is not installed.
        UnsupportedPlatformError: libseccomp is not installed, or too old to compile the filter.
    """
    seccomp = _module()
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    # A tree instead of a list: the kernel tries the filter on every system call's number each time it is installed.
    rules.set_attr(seccomp.Attr.CTL_OPTIMIZE, 2)
    try:
        _add_rules(seccomp, rules, memory_accounted)
        descriptor = os.memfd_create("agar-seccomp")
        with os.fdopen(descriptor, "rb+", buffering=0) as file:
            rules.export_bpf(file)
            file.seek(0)
            return file.read()
    except OSError as error:
        raise UnsupportedPlatformError(
            f"libseccomp cannot compile the sandbox's filter ({error}): install libseccomp 2.5 or newer"
        ) from error


def allowed_names() -> list[str]:
    """The calls that may be made whatever their arguments, for a filter that lists those.

    Raises:
        MissingExtraError: pyseccomp is not installed.
        UnsupportedPlatformError: libseccomp is not installed.
    """
    seccomp = _module()
    checked = {"socket", "socketpair", "clone"}
    refused = {*_REFUSED.split(), *_ABSENT.split(), *checked}
    found = set()
    for number in range(_FIRST_UNKNOWN):
        with suppress(ValueError):  # numbers have gaps
            name = seccomp.resolve_syscall(seccomp.system_arch(), number)
            found.add(name.decode() if isinstance(name, bytes) else str(name))
    return sorted(found - refused)


def absent_names() -> list[str]:
    """The calls that answer ENOSYS, as on a kernel without them."""
    return _ABSENT.split()


def _module() -> ModuleType:
    try:
        import pyseccomp
    except ImportError as error:
        raise MissingExtraError(f"bubblewrap sandboxes need pyseccomp: {to_install('sandbox')}") from error
    except (OSError, RuntimeError) as error:  # the package is there, the C library is not
        raise UnsupportedPlatformError(
            f"pyseccomp cannot load libseccomp ({error}): install it, for instance apt-get install libseccomp2"
        ) from error
    module: ModuleType = pyseccomp
    return module


def _add_rules(seccomp: ModuleType, rules: object, memory_accounted: bool) -> None:
    refuse, absent = seccomp.ERRNO(errno.EPERM), seccomp.ERRNO(errno.ENOSYS)
    add = rules.add_rule  # type: ignore[attr-defined]
    for name in (_REFUSED + ("" if memory_accounted else _UNACCOUNTED)).split():
        if _known(seccomp, name):
            add(refuse, name)
    for name in _ABSENT.split():
        if _known(seccomp, name):
            add(absent, name)
    for number in range(_FIRST_UNKNOWN, _LAST_UNKNOWN):
        add(absent, number)
    # The kernel reads 32 bits of these arguments, so an equality must mask: 1 << 32 | 3 is also AF_AX25.
    known = range(max(FAMILIES) + 1)
    families = [
        *(seccomp.Arg(0, seccomp.MASKED_EQ, 0xFFFFFFFF, family) for family in known if family not in FAMILIES),
        seccomp.Arg(0, seccomp.GE, len(known)),
    ]
    for family in families:
        add(refuse, "socket", family)
        add(refuse, "socketpair", family)
    netlink = seccomp.Arg(0, seccomp.EQ, NETLINK)  # with bits above the 32nd it is refused already
    add(refuse, "socket", netlink, seccomp.Arg(2, seccomp.GE, 1))  # of its protocols only route: `ip`, getifaddrs
    bit = 1
    while bit <= NEW_NAMESPACES:
        if bit & NEW_NAMESPACES:
            add(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, bit, bit))
        bit <<= 1
    for request in (_TIOCSTI, _TIOCLINUX):  # would type into the terminal of whoever started us
        add(refuse, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))


def _known(seccomp: ModuleType, name: str) -> bool:
    """Whether this machine has the call: the lists name calls of several architectures and kernel ages.

    A call unknown to an old libseccomp is either absent from the machine or among the unknown numbers refused above.
    """
    try:
        return bool(seccomp.resolve_syscall(seccomp.system_arch(), name) >= 0)
    except (OSError, ValueError):
        return False
