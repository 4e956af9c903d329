"""A folder in which one leader acts at a time: the newest epoch seen, and the lock under which the world is changed."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gpuyard.engines.contract import Stale, Transient
from gpuyard.engines.machine.files import EPOCH as _EPOCH
from gpuyard.engines.machine.files import LOCK as _LOCK
from gpuyard.engines.machine.files import read_small, replace_small, sync
from gpuyard.errors import error_text

_LOCK_S_MAX = 5.0
_PAUSE_S = 0.005


class OneLeader:
    """The folder's lock and epoch."""

    def __init__(self, root: str) -> None:
        self.root = root

    @contextmanager
    def acting(self, epoch: int) -> Iterator[None]:
        """Hold the lock, under an epoch that is not older than the newest seen."""
        with self.locked():
            self._check(epoch)
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock under which the world is changed."""
        try:
            fd = os.open(os.path.join(self.root, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise Transient(f"{self.root} cannot be written: {error_text(error)}") from error
        try:
            self._lock(fd)
            yield
        except OSError as error:
            # A full or broken disk in the middle of a call: the caller has to look again.
            raise Transient(f"{self.root} cannot be written: {error_text(error)}") from error
        finally:
            os.close(fd)

    def _lock(self, fd: int) -> None:
        until = time.monotonic() + _LOCK_S_MAX
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # A process that was paused while it held the lock must not hold up another indefinitely.
                if time.monotonic() > until:
                    raise Transient(f"another process acts on {self.root}") from None
                time.sleep(_PAUSE_S)
            else:
                return

    def _check(self, epoch: int) -> None:
        path = os.path.join(self.root, _EPOCH)
        newest = (read_small(path) or {"epoch": 0})["epoch"]
        if epoch < newest:
            raise Stale(f"epoch {epoch} is over, the newest is {newest}")
        if epoch > newest:
            try:
                replace_small(path, {"epoch": epoch}, durable=True)
                sync(self.root)
            except OSError as error:
                raise Transient(f"the epoch cannot be kept: {error_text(error)}") from error
