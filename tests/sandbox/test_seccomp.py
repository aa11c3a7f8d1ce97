"""The compiled filter, run by a small interpreter of classic BPF: an oracle that is not the kernel."""

import errno
import platform
import struct

import pytest

from agar.sandbox import seccomp

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x00000000, 0x00050000
ARCHITECTURE = 0xC000003E  # x86-64

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="system call numbers here are x86-64's")


def verdict(program: bytes, number: int, *arguments: int, architecture: int = ARCHITECTURE) -> int:
    values = [value & (2**64 - 1) for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<iIQ6Q", number, architecture, 0, *values)
    code = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    at, accumulator = 0, 0
    while True:
        operation, yes, no, k = code[at]
        at += 1
        if operation == 0x20:  # load a word
            accumulator = struct.unpack_from("<I", data, k)[0]
        elif operation == 0x54:  # and
            accumulator &= k
        elif operation in (0x15, 0x25, 0x35, 0x45):
            holds = {0x15: accumulator == k, 0x25: accumulator > k, 0x35: accumulator >= k, 0x45: accumulator & k}
            at += yes if holds[operation] else no
        elif operation == 0x05:
            at += k
        elif operation == 0x06:
            return k
        else:
            raise AssertionError(f"unknown instruction {operation:#x}")


@pytest.mark.parametrize(
    ("number", "arguments", "wanted"),
    [
        (0, (), 0),  # read
        (41, (1, 1, 0), 0),  # socket unix
        (41, (2, 1, 0), 0),  # socket inet
        (41, (16, 3, 0), 0),  # netlink route
        (41, (16, 3, 9), errno.EPERM),  # netlink audit
        (41, (40, 1, 0), errno.EPERM),  # vsock
        (41, (40 | 1 << 40, 1, 0), errno.EPERM),  # vsock behind high bits that the kernel ignores
        (41, (38, 5, 0), errno.EPERM),  # AF_ALG
        (41, (2 | 1 << 32, 1, 0), errno.EPERM),  # inet behind a high bit: nobody's, and refused
        (41, (46, 1, 0), errno.EPERM),  # a family beyond those that kernels know
        (41, (16, 3, 1 << 32), errno.EPERM),  # netlink route behind a high bit
        (53, (1, 1, 0), 0),  # socketpair unix
        (53, (40, 1, 0), errno.EPERM),  # socketpair
        (56, (0x01200011,), 0),  # clone, as fork does
        (56, (0x10000011,), errno.EPERM),  # clone with a user namespace
        (56, (0x7E020011,), errno.EPERM),  # clone with all namespaces
        (435, (), errno.ENOSYS),  # clone3
        (425, (), errno.ENOSYS),  # io_uring_setup
        (272, (0,), errno.EPERM),  # unshare
        (101, (), errno.EPERM),  # ptrace
        (250, (), errno.EPERM),  # keyctl
        (16, (0, 0x5412), errno.EPERM),  # ioctl TIOCSTI
        (16, (0, 0x5401), 0),  # ioctl TCGETS
        (500, (), errno.ENOSYS),  # not yet invented
    ],
)
def test_calls_are_judged(number, arguments, wanted):
    got = verdict(seccomp.program(), number, *arguments)
    assert got == (ERRNO | wanted if wanted else ALLOW)


def test_no_family_but_those_named_is_served():
    program = seccomp.program()
    for high in (0, 1 << 32, 1 << 63):
        for family in range(300):
            wanted = ALLOW if high == 0 and family in seccomp.FAMILIES else ERRNO | errno.EPERM
            assert verdict(program, 53, family | high, 1, 0) == wanted


def test_other_word_sizes_are_killed():
    assert verdict(seccomp.program(), 0, architecture=0x40000003) & 0xFFFF0000 in (KILL, 0x80000000)
    assert verdict(seccomp.program(), 0x40000000 | 41, 1) & 0xFFFF0000 in (KILL, 0x80000000), "x32"


def test_memory_outside_the_address_space_is_refused_only_where_nothing_counts_it():
    for number in (29, 319):  # shmget, memfd_create
        assert verdict(seccomp.program(memory_accounted=True), number) == ALLOW
        assert verdict(seccomp.program(memory_accounted=False), number) == ERRNO | errno.EPERM


def test_the_filter_is_small_enough_for_the_kernel():
    assert len(seccomp.program()) // 8 < 4096
