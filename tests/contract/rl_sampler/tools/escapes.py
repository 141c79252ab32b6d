"""Programs that try to get out of the sandbox, and the system calls that they try."""

FORBIDDEN = {
    "pwrite64": 18,
    "shmget": 29,
    "socket": 41,
    "connect": 42,
    "accept": 43,
    "sendmsg": 46,
    "bind": 49,
    "listen": 50,
    "clone": 56,
    "fork": 57,
    "vfork": 58,
    "execve": 59,
    "msgget": 68,
    "truncate": 76,
    "ftruncate": 77,
    "rename": 82,
    "mkdir": 83,
    "creat": 85,
    "link": 86,
    "unlink": 87,
    "symlink": 88,
    "chmod": 90,
    "ptrace": 101,
    "setuid": 105,
    "setsid": 112,
    "rt_sigqueueinfo": 129,
    "mknod": 133,
    "personality": 135,
    "mlock": 149,
    "chroot": 161,
    "mount": 165,
    "tkill": 200,
    "sched_setaffinity": 203,
    "mq_open": 240,
    "add_key": 248,
    "keyctl": 250,
    "unshare": 272,
    "inotify_init1": 294,
    "perf_event_open": 298,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "seccomp": 317,
    "memfd_create": 319,
    "bpf": 321,
    "execveat": 322,
    "userfaultfd": 323,
    "copy_file_range": 326,
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "pidfd_open": 434,
    "clone3": 435,
    "openat2": 437,
    "pidfd_getfd": 438,
    "of the future": 1000,
    "write of x32": 0x40000001,
    "of nobody": 0xFFFFFFFF,
}
TRY_CALLS = f"""
import ctypes
kernel = ctypes.CDLL(None, use_errno=True)
for name, number in {FORBIDDEN}.items():
    ctypes.set_errno(0)
    print(name, kernel.syscall(ctypes.c_long(number), 0, 0, 0, 0, 0, 0), ctypes.get_errno())
"""
TRY_WRITING = """
import os
for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | os.O_CREAT,
              os.O_RDONLY | os.O_TRUNC, os.O_RDWR | os.O_TMPFILE):
    for path in ("/tmp/{name}", "/dev/shm/{name}", "/tmp", "/dev/null"):
        try:
            os.open(path, flags)
        except OSError as error:
            print(error.errno)
        else:
            print("written", path)
"""
TRY_SIGNALS = """
import fcntl, os, resource, signal
def attempt(what, *arguments):
    try:
        what(*arguments)
    except OSError as error:
        print(type(error).__name__)
    else:
        print("done", what, arguments)
reads, writes = os.pipe()
attempt(os.kill, os.getppid(), 9)
attempt(os.kill, os.getppid(), 0)
attempt(os.kill, -1, 9)
attempt(os.kill, 0, 9)
attempt(os.kill, os.getpid(), 9)
attempt(fcntl.fcntl, reads, fcntl.F_SETOWN, os.getppid())
attempt(resource.prlimit, os.getppid(), resource.RLIMIT_CPU, (1, 1))
"""
