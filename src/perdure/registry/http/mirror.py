"""A registry on the network, copied to a file by a child process: the host itself makes no network requests.

The host mounts the servers of the copy. The copy is updated at the start and every minute, with the catalog's ETag; the host
sees a changed file. It waits, briefly, only if there is no copy yet. If the catalog cannot be reached, the copy stays and is
updated less often.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from perdure.storage.user_dirs import private_dir, write_private

if TYPE_CHECKING:
    import subprocess

FIRST_WAIT_S: Final = 5.0
EVERY: Final = "PERDURE_REGISTRY_POLL"
EVERY_S: Final = 60.0
SHORTEST_S: Final = 0.1
LONGEST_S: Final = 3600.0


def mirror_path(location: str) -> str:
    """The path of the copy. Its name does not reveal the URL, which may hold a password."""
    from hashlib import sha256

    return os.path.join(private_dir("cache"), f"registry-{sha256(location.encode()).hexdigest()[:32]}.json")


class Mirror:
    """The copy of one registry: created before the first mount, updated while the host runs."""

    def __init__(self, location: str, environ: Mapping[str, str]) -> None:
        self.path = mirror_path(location)
        self._location = location
        self._environ = dict(environ)
        self._every_s = interval(environ)
        self._failures = 0
        self._due = 0.0
        self._child: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Start an update; wait briefly for the first copy."""
        import subprocess

        is_first = not os.path.exists(self.path)
        self._start()
        if is_first and self._child is not None:
            try:
                self._child.wait(FIRST_WAIT_S)
            except subprocess.TimeoutExpired:
                pass

    def tend(self) -> None:
        """Called periodically: start an update when it is due. After failures it is due less often."""
        now = time.monotonic()
        if self._child is not None:
            code = self._child.poll()
            if code is None:
                return
            self._child = None
            self._failures = self._failures + 1 if code else 0
            wait = min(self._every_s * 2**self._failures, max(LONGEST_S, self._every_s))
            self._due = now + wait * random.uniform(0.9, 1.1)  # many hosts do not update at once
        elif now >= self._due:
            self._start()

    def _start(self) -> None:
        import subprocess

        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "perdure.registry.http.mirror", self.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=None if self._failures == 0 else subprocess.DEVNULL,  # an error is printed once
                env=self._environ,
                start_new_session=True,
            )
        except OSError:
            self._due = time.monotonic() + self._every_s
            return
        self._child = child
        assert child.stdin is not None
        try:
            with child.stdin as pipe:
                pipe.write(self._location.encode())  # not an argument, which other users can read
        except OSError:
            pass  # it ended before it read; its exit code reports that


def interval(environ: Mapping[str, str]) -> float:
    """Seconds between two updates."""
    try:
        seconds = float(environ.get(EVERY, ""))
    except ValueError:
        return EVERY_S
    return seconds if SHORTEST_S <= seconds <= LONGEST_S else EVERY_S


def copy(location: str, path: str, environ: Mapping[str, str]) -> None:
    """Replace the copy atomically if it differs; only enabled servers, since a host mounts no others.

    Raises RegistryError.
    """
    import msgspec

    from perdure.registry.backend import open_backend
    from perdure.registry.entry_json import to_object

    entries = [entry for entry in open_backend(location, environ).load_all() if entry.enabled]
    text = msgspec.json.format(
        msgspec.json.encode({"mcpServers": {entry.name: to_object(entry) for entry in entries}}), indent=2
    )
    try:
        with open(path, "rb") as file:
            if file.read() == text:
                return
    except FileNotFoundError:
        pass
    write_private(path, text)


def main() -> int:
    from perdure.registry.errors import RegistryError

    try:
        copy(sys.stdin.read(), sys.argv[1], os.environ)
    except RegistryError as error:
        print(f"perdure: registry: {error.message}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
