"""The first program in an Apptainer container: gives up what the cell's contract does not allow, and becomes the cell.

Usage: python -I -S -c THIS SETTINGS COMMAND..., with Python's own standard library alone. SETTINGS is JSON: `tasks`
(how many processes and threads there may be) and `variables` (the environment of the cell).

Without cgroups, memory that belongs to no process is seen by nobody. So what makes such memory (memory file systems
mounted in a user namespace of the cell's own, anonymous memory files, System V segments) is refused by a system call
filter, as is what Docker's default filter refuses and ordinary programs do not need.
"""

import ctypes
import json
import os
import resource
import struct
import sys

# By linux/filter.h, linux/seccomp.h, linux/audit.h and asm/unistd_64.h.
LOAD, JUMP_EQUAL, JUMP_FROM, JUMP_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
X86_64, X32 = 0xC000003E, 0x40000000
ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38  # EPERM, ENOSYS
CLONE, CLONE3, CLONE_NEWUSER = 56, 435, 0x10000000
REFUSED = {
    "shmget": 29,
    "pivot_root": 155,
    "mount": 165,
    "umount2": 166,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "perf_event_open": 298,
    "setns": 308,
    "memfd_create": 319,
    "bpf": 321,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "memfd_secret": 447,
}
SET_NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2


def system_call_filter() -> bytes:
    """A program of `struct sock_filter`: code, steps to jump if true, if false, and a value."""
    step = struct.Struct("=HBBI").pack
    program = [
        step(LOAD, 0, 0, ARCHITECTURE),
        step(JUMP_EQUAL, 1, 0, X86_64),
        step(RETURN, 0, 0, UNKNOWN),
        step(LOAD, 0, 0, NUMBER),
        step(JUMP_FROM, 0, 1, X32),
        step(RETURN, 0, 0, UNKNOWN),
        # Its flags lie in memory, where no filter sees them; the C library then takes `clone`.
        step(JUMP_EQUAL, 0, 1, CLONE3),
        step(RETURN, 0, 0, UNKNOWN),
    ]
    for number in REFUSED.values():
        program += [step(JUMP_EQUAL, 0, 1, number), step(RETURN, 0, 0, REFUSE)]
    program += [
        step(JUMP_EQUAL, 0, 3, CLONE),
        step(LOAD, 0, 0, FIRST_ARGUMENT),
        step(JUMP_BITS, 0, 1, CLONE_NEWUSER),
        step(RETURN, 0, 0, REFUSE),
        step(RETURN, 0, 0, ALLOW),
    ]
    return b"".join(program)


def refuse() -> None:
    """Refuse those system calls to this process and all that it starts, for good."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    code = system_call_filter()
    steps = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(steps)))
    for arguments in ((SET_NO_NEW_PRIVS, 1, 0, 0, 0), (SET_SECCOMP, FILTER, ctypes.addressof(program), 0, 0)):
        if prctl(*arguments):
            sys.exit(f"the kernel refuses a system call filter: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    settings, command = json.loads(sys.argv[1]), sys.argv[2:]
    resource.setrlimit(resource.RLIMIT_NPROC, (settings["tasks"], settings["tasks"]))
    refuse()
    # Of Apptainer's own variables, which name the host's paths, one is wanted: where the GPU's libraries are.
    libraries = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}
    os.execve(command[0], command, libraries | settings["variables"])


if __name__ == "__main__":
    main()
