"""Files elsewhere, as in s3://bucket/train.tsv.gz: read in a stream that outlives broken connections; replaced whole.

The package fsspec knows the kinds of storage; its backends look for credentials themselves.
"""

import io
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, TypeVar

from transformer_mt.base.errors import CorpusError, UserError
from transformer_mt.base.wording import cut, hidden, without_secret

T = TypeVar("T")

_BLOCK = 1 << 23  # bytes of a request: far more than are on their way in the time of a round trip
_LEAST_BLOCK = 1 << 16  # bytes of a request after many broken connections
_WAITS = (0.1, 0.5, 2.0, 5.0, 15.0, 30.0, 60.0)  # seconds before each new attempt; reading a byte begins anew
_LONG_WAIT = 5.0  # seconds; the user is told of one
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "http": "aiohttp", "https": "aiohttp"}  # as the extras of pyproject.toml
# What tells one version of a file from the next, in the words of the various kinds of storage.
_VERSION = ("size", "ETag", "etag", "generation", "Last-Modified", "LastModified", "last_modified", "mtime")


@dataclass(frozen=True)
class RemotePath:
    """A file that a URL names. It has those methods of Path that reading needs."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.url).suffix

    @cached_property
    def system(self) -> tuple[Any, str]:
        """The fsspec.AbstractFileSystem, and the name of the file in it. Raises UserError if there is none."""
        import fsspec

        scheme, options = self.url.partition("://")[0], dict[str, Any]()
        try:
            if scheme in ("http", "https"):
                from aiohttp import ClientTimeout

                # By default, reading may take five minutes in all, and the proxies in the environment play no role.
                options["client_kwargs"] = {"timeout": ClientTimeout(total=None, sock_read=60), "trust_env": True}
            system, path = fsspec.core.url_to_fs(self.url, **options)
        except ImportError as error:
            install = f"{sys.executable} -m pip install {_PACKAGES.get(scheme, 'PACKAGE')}"
            raise UserError(f"{self}: the package that reads {scheme}:// is missing ({error}): {install}") from None
        except Exception as error:  # each backend has its own
            raise UserError(
                f"{self}: cannot be opened ({cut(hidden(str(error)), 500)}); correct the URL, as in s3://BUCKET/FILE, "
                "gs://BUCKET/FILE or https://HOST/FILE, or the credentials of the backend"
            ) from None
        return system, path

    def is_file(self) -> bool:
        """Whether it can be read several times, unlike a pipe: True also for a missing file, which reading reports."""
        return True

    def version(self) -> dict[str, Any]:
        """Ask for the size and the other properties that change when the file does. Raises errors of the backend."""
        system, path = self.system
        system.invalidate_cache()
        found = system.info(path)
        if found["type"] == "directory":
            raise FileNotFoundError(f"{self} is a directory")
        return {key: found.get(key) for key in _VERSION}

    def exists(self) -> bool:
        """Whether there is such a file. Raises CorpusError if its server does not say."""
        try:
            self.tried(self.version, most_waits=2)
        except CorpusError as error:
            if isinstance(error.__cause__, FileNotFoundError) and _status(error.__cause__) in _MISSING:
                return False
            raise
        return True

    def matches(self) -> list[str]:
        """Return the URLs that match this one as a pattern, in alphabetical order. Raises CorpusError."""
        system, path = self.system
        found = self.tried(lambda: system.glob(path), most_waits=2)
        return sorted(system.unstrip_protocol(each) for each in found)

    def open(self, mode: Literal["rb"] = "rb") -> io.BufferedReader:
        """Open the file for reading. Raises CorpusError, also later, if it cannot be read or changes meanwhile."""
        return io.BufferedReader(_Reader(self), 1 << 20)

    def tried(self, action: Callable[[], T], most_waits: int | None = None, what: str = "be read") -> T:
        """Return the result of an action, tried again after errors that may pass. Raises CorpusError if all fail."""
        remaining = iter(_WAITS[:most_waits])
        while True:
            try:
                return action()
            except UserError:
                raise
            except Exception as error:  # each backend has its own
                reason = cut(hidden(str(error.__cause__ or error)), 500) or type(error).__name__
                if isinstance(error, FileNotFoundError) and error.__cause__ is None:
                    reason = "there is no such file"
                if (wait := next(remaining, None)) is None or _is_final(error):
                    raise CorpusError(
                        f"{self}: cannot {what} ({reason}); check the URL, the network and the credentials, and give "
                        "the same command again"
                    ) from error
            if wait >= _LONG_WAIT:
                print(f"{self}: cannot {what} ({reason}); trying again in {wait:.0f} s", file=sys.stderr)
            time.sleep(wait)

    def check_writable(self) -> None:
        """Raises UserError if no file can be written there."""
        if "http" in self.system[0].protocol:
            raise UserError(f"{self}: a web server does not accept files; name an output in s3://, gs:// or on a disk")

    @contextmanager
    def replaced(self) -> Iterator[BinaryIO]:
        """Open a local file that at the end is sent there, where it appears whole. Raises UserError if that fails."""
        import tempfile  # here, because few commands send a file

        self.check_writable()
        system, path = self.system

        def send() -> None:
            file.seek(0)
            with system.transaction, system.open(path, "wb") as there:
                shutil.copyfileobj(file, there, _BLOCK)

        with tempfile.TemporaryFile() as file:
            yield file
            self.tried(send, what="be written")


Place = Path | RemotePath


def place(name: str) -> Place:
    """Return the file with this name, which may be a URL. Raises UserError if it seems to contain a secret."""
    scheme, separator, path = name.partition("://")
    if scheme in ("file", "local"):
        return Path(path)
    is_url = separator and len(scheme) > 1  # one letter is a drive of Windows
    return RemotePath(without_secret(name)) if is_url else Path(name)


_MISSING = 404, 410  # as HTTP says it


def _status(error: FileNotFoundError) -> int:
    """What HTTP said, or 404. Its backend reports every failure as a missing file, with the failure as the cause."""
    if any("Connection" in kind.__name__ for kind in type(error.__cause__).__mro__):
        return 0
    return getattr(error.__cause__, "status", 404)


def _is_final(error: Exception) -> bool:
    """Whether another attempt would be useless."""
    if isinstance(error, FileNotFoundError):
        return _status(error) in (401, 403, *_MISSING)
    return isinstance(error, PermissionError | NotImplementedError)


def check_same(found: object, before: object, name: str) -> None:
    """Raises CorpusError if a file has another digest, or another size or time, than before."""
    if found != before:
        raise CorpusError(
            f"{name}: has changed during reading; let no other program write it, and give the same command again"
        )


class _Reader(io.RawIOBase):
    """The bytes of a remote file. After a broken connection, it continues where it was."""

    def __init__(self, remote: RemotePath) -> None:
        """Raises CorpusError if there is no such file."""
        self._remote, self._position, self._block, self._checked_at, self._failed_at = remote, 0, _BLOCK, 0, 0
        self._file: Any = None
        self._version = remote.tried(remote.version, most_waits=2)
        self._size: int | None = self._version["size"]
        self._by_range = self._size is not None  # whether the server can begin anywhere: some of HTTP cannot

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._size is not None

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size or 0}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        content = self._remote.tried(lambda: self._read(len(buffer)), what=f"be read from byte {self._position:,} on")
        self._position += len(content)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._disconnect()
        super().close()

    def _disconnect(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _read(self, most: int) -> bytes:
        """Read some bytes; none at the end. Raises errors of the backend, after which the next call connects again."""
        content = b""
        try:
            if self._size is None or self._position < self._size:
                content = self._connected().read(min(most, self._block))
                if not content and self._size is not None:
                    raise EOFError(f"the connection ended at byte {self._position:,} of {self._size:,}")
            if not content:
                self._check_version()
        except Exception as error:
            if self._remote.url.startswith("http") and type(error) is ValueError:
                self._by_range = False  # fsspec found out that the server cannot begin anywhere
            # Smaller requests while the connection breaks often, larger ones when it has become better.
            is_better = self._position - self._failed_at > 16 * self._block
            self._block = min(_BLOCK, max(_LEAST_BLOCK, self._block * 2 if is_better else self._block // 2))
            self._failed_at = self._position
            self._disconnect()
            raise
        return content

    def _connected(self) -> Any:
        """Return the open file of fsspec at our position."""
        system, path = self._remote.system
        if not self._by_range and self._file is not None and self._file.loc > self._position:
            self._disconnect()
        if self._file is None:
            self._check_version()
            self._file = system.open(path, "rb", block_size=self._block if self._by_range else 0)
        if self._by_range:
            self._file.seek(self._position)
        else:
            while left := self._position - self._file.loc:
                if not self._file.read(min(left, _BLOCK)):
                    raise EOFError("the connection ended before the bytes that are read already")
        return self._file

    def _check_version(self) -> None:
        """Raises CorpusError if the file has changed. Asks once at each position."""
        if self._position != self._checked_at:
            check_same(self._remote.version(), self._version, str(self._remote))
            self._checked_at = self._position
