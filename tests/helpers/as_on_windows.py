"""Runs stages on Linux as far as possible as on Windows: `python as_on_windows.py DIRECTORY`.

The package, and only it, sees no module and no name that Windows lacks, and calls stand-ins for functions of Windows.
No open or memory-mapped file can be renamed, replaced or deleted, unless it was opened for that.
"""

import ctypes
import importlib
import os
import pkgutil
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

NO_MODULES = ("fcntl", "grp", "posix", "pwd", "resource", "syslog", "termios")
NO_NAMES = {
    os: "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK WNOHANG chown fchmod fdatasync fork getegid geteuid getgid "
    "getloadavg getpgid getuid killpg mkfifo nice posix_fadvise pread pwrite sched_getaffinity setsid statvfs sync "
    "sysconf uname",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGUSR1 SIGUSR2 SIG_BLOCK SIG_SETMASK alarm pause "
    "pthread_kill pthread_sigmask setitimer sigwait",
}
GIB = 2**30
PACKAGE = "transformer_mt"
_opened_to_be_renamed: set[int] = set()


class Seen(ModuleType):
    """A module as the package sees it: without some names, and with others."""

    def __init__(self, module: ModuleType, missing: str = "", **own: object) -> None:
        super().__init__(module.__name__)
        vars(self).update(own, _of=module, _missing=missing.split())

    def __getattr__(self, name: str) -> object:
        if name in self._missing:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on Windows")
        return getattr(self._of, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._of, name, value)


def create_file(
    name: str, access: int, share: int, security: int, creation: int, attributes: int, template: int
) -> int:
    """As CreateFile with FILE_SHARE_READ, _WRITE and _DELETE; OPEN_ALWAYS; FILE_ATTRIBUTE_NORMAL."""
    assert (access, share, security, creation, attributes, template) == (0xC0000000, 1 | 2 | 4, 0, 4, 0x80, 0)
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT)
    _opened_to_be_renamed.add(descriptor)
    return descriptor


def locking(fcntl: ModuleType, descriptor: int, mode: int, number: int) -> None:
    """As msvcrt.locking, of one byte that is behind all content, without waiting."""
    assert (mode, number) == (2, 1) and os.lseek(descriptor, 0, os.SEEK_CUR) > os.fstat(descriptor).st_size
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(13, "Permission denied") from None


def create_junction(directory: str, link: str) -> None:
    assert os.path.isabs(directory) and os.path.isdir(directory) and not os.path.lexists(link)
    os.symlink(directory, link)


class Kernel32:
    """Functions about memory: 8 GiB, of which 4 are free; this process had one."""

    @staticmethod
    def GlobalMemoryStatusEx(numbers: ctypes.Array) -> None:
        assert numbers[0] == ctypes.sizeof(numbers) == 64
        numbers[1], numbers[2] = 8 * GIB, 4 * GIB

    @staticmethod
    def K32GetProcessMemoryInfo(process: ctypes.c_void_p, numbers: ctypes.Array, size: int) -> None:
        assert process.value == 2**64 - 1 and numbers[0] == ctypes.sizeof(numbers) == size == 72
        numbers[1] = GIB


def stand_in(name: str, **functions: object) -> Seen:
    return Seen(ModuleType(name), **functions)


def files_in_use() -> list[str]:
    """The paths of the files that this process has opened or mapped, without those that it may rename."""
    found = [line.split(maxsplit=5)[5:] for line in Path("/proc/self/maps").read_text("utf-8").splitlines()]
    paths = [path[0] for path in found if path]
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # of the list itself
            continue
        # A descriptor may have closed, and its number belong to another file now.
        if int(descriptor) not in _opened_to_be_renamed or not path.endswith((".transformer_mt-partial", "lock")):
            paths.append(path)
    return [path for path in paths if not path.endswith(" (deleted)")]


def refusing(change: Callable[..., None]) -> Callable[..., None]:
    """A function that renames or deletes, but not what is in use."""

    def checked(*paths: os.PathLike[str] | str, **more: object) -> None:
        for path in map(os.path.abspath, paths):
            place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            used = [file for file in files_in_use() if file == place or file.startswith(f"{place}/")]
            if used and not os.path.islink(path):
                raise PermissionError(13, f"{change.__name__}: {used[0]} is in use", path)
        change(*paths, **more)

    return checked


def become_windows() -> None:
    """Change what the package finds when it is imported; all other packages are imported before."""
    import fcntl

    modules()
    for name in [name for name in sys.modules if name.split(".")[0] == PACKAGE]:
        del sys.modules[name]
    for name in ("replace", "rename", "unlink", "remove", "rmdir"):
        setattr(os, name, refusing(getattr(os, name)))
    shutil._use_fd_functions = False  # as on Windows: the functions above get whole paths
    read, write = 0x80000000, 0x40000000
    winapi = stand_in(
        "_winapi", GENERIC_READ=read, GENERIC_WRITE=write, CreateFile=create_file, CreateJunction=create_junction
    )
    msvcrt = stand_in(
        "msvcrt", LK_NBLCK=2, locking=partial(locking, fcntl), open_osfhandle=lambda handle, flags: handle
    )
    sys.modules |= {
        **dict.fromkeys(NO_MODULES),
        "_winapi": winapi,
        "msvcrt": msvcrt,
        "os": Seen(os, NO_NAMES[os], O_BINARY=0, name="nt"),
        "signal": Seen(signal, NO_NAMES[signal]),
        "sys": Seen(sys, platform="win32"),
        "ctypes": Seen(ctypes, windll=stand_in("windll", kernel32=Kernel32)),
    }


def modules() -> list[str]:
    """Import every module of the package, except those of optional packages that are missing; their names."""
    package, names = importlib.import_module(PACKAGE), []
    for found in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
        try:
            importlib.import_module(found.name)
            names.append(found.name)
        except ModuleNotFoundError as error:
            if error.name in NO_MODULES or str(error.name).startswith(PACKAGE):
                raise
    return names


def main() -> None:
    become_windows()
    warnings.filterwarnings("error", category=EncodingWarning, module=PACKAGE)
    names = modules()
    system = importlib.import_module(f"{PACKAGE}.base.system")
    assert system.HANGUP is None and not system.CAN_FORK
    print(len(names), system.machine_memory() // GIB, system.free_memory() // GIB, system.peak_memory() // GIB)
    for arguments in [line.split() for line in sys.stdin.read().splitlines()]:
        stage = importlib.import_module(f"{PACKAGE}.{arguments[0]}")
        status = importlib.import_module(f"{PACKAGE}.terminal.cli").run(stage.main, arguments[1:])
        assert status == 0, arguments


if __name__ == "__main__":
    main()
