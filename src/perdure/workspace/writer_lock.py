"""The lock under which a workspace is changed: on its root directories themselves, and on its store.

The roots are locked so that two users, a container and another data directory exclude each other, although each has a
store of its own. The store is locked as well: two roots of one path, as two containers have them, may share it, and
processes of an earlier version lock nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.storage.process_lock import LOCK_S, DirectoryLock, ProcessLock, open_lock_file


class WriterLock:
    """`root_fds` may be descriptors that only hold a place (O_PATH)."""

    def __init__(self, path: str, root_fds: Sequence[int] = ()) -> None:
        self.path = path
        self._store = ProcessLock(lambda: open_lock_file(path))
        roots = {lock.identity: lock for lock in map(DirectoryLock, root_fds)}
        # Always in the same order: of two processes that share several roots, neither waits for the other for ever.
        self._locks: tuple[DirectoryLock | ProcessLock, ...] = (
            *(roots[identity] for identity in sorted(roots)),
            self._store,
        )

    def take(self) -> None:
        """Raises LockTimeout where another process keeps it for too long."""
        for taken, lock in enumerate(self._locks):
            try:
                lock.take(LOCK_S)
            except BaseException:
                self._give(taken)
                raise

    def give(self) -> None:
        self._give(len(self._locks))

    def _give(self, taken: int) -> None:
        for lock in reversed(self._locks[:taken]):
            lock.give()

    def is_replaced(self) -> bool:
        """Whether another file has the name of the one that is locked. Asked under the lock."""
        return not self._store.leads_to(self.path)

    def close(self) -> None:
        for lock in self._locks:
            lock.close()
