"""What Windows does in another way than Linux and macOS: locks, links, owners, signals, command lines, memory.

What differs stands here twice. We have no Windows machine: a test runs the part for Windows on Linux, with stand-ins
for the functions of Windows.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.base.cores import container_memory, text

CAN_FORK = sys.platform == "linux"  # on macOS, a forked process may crash in libraries of the system


def machine_memory() -> int:
    """Return the machine's memory in bytes, or the limit of the container in which this process runs."""
    return min(_installed(), container_memory())


if sys.platform != "win32":
    import errno
    import fcntl
    import resource
    import shlex
    import stat
    import time

    HANGUP: signal.Signals | None = signal.SIGHUP
    _NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
    _STOPPING = signal.SIGINT, signal.SIGTERM
    _CHECK_PARENT = 0.2  # seconds between two checks of a process whether its parent still runs

    def open_to_lock(path: Path) -> int:
        """Open a file, or create it if it is missing, and return its descriptor. Raises OSError, also for a link."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)

    def lock(descriptor: int) -> bool:
        """Lock a file until it is closed, if the file system has locks. Returns False if another process holds it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        return True

    def flush_to_disk(path: Path) -> None:
        """Make sure that the content of a file, or the names in a directory, are on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def link_directory(link: Path, directory: Path) -> None:
        """Make a link to a directory that lies beside it, or point an existing link there."""
        partial = link.with_name(f"{link.name}.partial")
        partial.unlink(missing_ok=True)
        partial.symlink_to(directory.name)
        os.replace(partial, link)

    def user_id() -> int:
        """Return the owner of the files that this process makes, as in `os.stat_result.st_uid`."""
        return os.geteuid()

    def may_others_write(status: os.stat_result) -> bool:
        """Whether users other than the owner may write to a file or directory."""
        return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))

    @contextmanager
    def without_interrupts() -> Iterator[None]:
        """Delay Ctrl-C and SIGTERM for this process. Processes that start meanwhile never get them, only this one does.

        Another thread, which does not block them, may get them. Python still handles them in the main thread, where the
        exception would be lost if it came while Python calls functions around a fork.
        """
        came, is_main = list[int](), threading.current_thread() is threading.main_thread()
        handlers = {each: handler for each in _STOPPING if is_main and callable(handler := signal.getsignal(each))}
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        try:
            for each in handlers:
                signal.signal(each, lambda number, _: came.append(number))
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            for each, handler in handlers.items():
                signal.signal(each, handler)
        for number in came:
            signal.raise_signal(number)

    def end_with(parent: int) -> None:
        """End this process with its parent. Linux's PR_SET_PDEATHSIG comes too early: with the thread that forked."""
        while os.getppid() == parent:
            time.sleep(_CHECK_PARENT)
        os.kill(os.getpid(), signal.SIGKILL)

    def command_line(words: Sequence[str]) -> str:
        """Join the words of a command to a line that a user can type."""
        return shlex.join(words)

    def peak_memory() -> int:
        """Return the peak of this process's memory so far, in bytes, without worker processes and GPU memory."""
        # On Linux, ru_maxrss includes memory of the process that started this one; VmHWM counts only this program.
        if found := re.search(r"^VmHWM:\s*(\d+) kB", text(Path("/proc/self/status")), re.MULTILINE):
            return int(found[1]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024  # in bytes on macOS, in KiB elsewhere

    def free_memory() -> int:
        """Return how many bytes of the machine's memory are free for programs, but at most the container's limit."""
        found = re.search(r"MemAvailable: *(\d+) kB", text(Path("/proc/meminfo")))
        return min(int(found[1]) * 1024 if found else _installed(), container_memory())

    def _installed() -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

else:
    import _winapi
    import ctypes
    import msvcrt
    import subprocess
    from multiprocessing import parent_process

    HANGUP: signal.Signals | None = None
    _SHARE_ALL, _OPEN_ALWAYS, _NORMAL_FILE = 7, 4, 0x80  # numbers from the documentation of CreateFile
    _LOCKED_BYTE = 2**30  # no other process can read a locked byte, so it lies far behind the content

    def open_to_lock(path: Path) -> int:
        # Nobody could rename or delete a file that `os.open` has opened.
        access = _winapi.GENERIC_READ | _winapi.GENERIC_WRITE
        handle = _winapi.CreateFile(str(path), access, _SHARE_ALL, 0, _OPEN_ALWAYS, _NORMAL_FILE, 0)
        return msvcrt.open_osfhandle(handle, os.O_RDWR | os.O_BINARY)

    def lock(descriptor: int) -> bool:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

    def flush_to_disk(path: Path) -> None:
        if path.is_file():  # Windows cannot do it for the names in a directory
            with path.open("r+b") as file:
                os.fsync(file.fileno())

    def link_directory(link: Path, directory: Path) -> None:
        # A junction: for a symbolic link, Windows asks for special rights. It names its target with the whole path.
        if os.path.lexists(link):
            link.unlink()
        _winapi.CreateJunction(str(directory.absolute()), str(link))

    def user_id() -> int:
        return 0

    def may_others_write(status: os.stat_result) -> bool:
        return False  # st_mode does not say it; Windows protects what is in a user's own directory

    @contextmanager
    def without_interrupts() -> Iterator[None]:
        yield  # a process that starts may also get a Ctrl-C, and print a traceback

    def end_with(parent: int) -> None:
        if process := parent_process():  # os.getppid() stays the same after the end of the parent
            process.join()
        os._exit(1)

    def command_line(words: Sequence[str]) -> str:
        return subprocess.list2cmdline(words)

    def peak_memory() -> int:
        numbers = (ctypes.c_uint64 * 9)(72)  # PROCESS_MEMORY_COUNTERS: its size, the peak, and others
        ctypes.windll.kernel32.K32GetProcessMemoryInfo(ctypes.c_void_p(-1), numbers, 72)  # -1: this process
        return numbers[1]

    def free_memory() -> int:
        return _memory()[2]

    def _installed() -> int:
        return _memory()[1]

    def _memory() -> Sequence[int]:
        numbers = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its size, all memory, free memory, and others
        ctypes.windll.kernel32.GlobalMemoryStatusEx(numbers)
        return list(numbers)
