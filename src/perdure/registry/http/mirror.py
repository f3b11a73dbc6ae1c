"""A registry on the network, for a host that speaks with nothing but pipes: copied to a file by a process of its own.

The host mounts what the copy says and goes on while it is renewed, at its start and every minute (with the catalog's
ETag, so that nothing is sent twice); a changed copy is a changed file to it. Only the first time, when there is no copy
yet, does it wait, and not for long. A catalog that cannot be reached leaves the copy as it is and is asked less often.
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
    """Where the copy of a registry lies. Its name tells nothing of the URL, which may hold a password."""
    from hashlib import sha256

    return os.path.join(private_dir("cache"), f"registry-{sha256(location.encode()).hexdigest()[:32]}.json")


class Mirror:
    """The copy of one registry: made before the first mount, renewed every so often while the host runs."""

    def __init__(self, location: str, environ: Mapping[str, str]) -> None:
        self.path = mirror_path(location)
        self._location = location
        self._environ = dict(environ)
        self._every_s = interval(environ)
        self._failures = 0
        self._due = 0.0
        self._child: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Begin to renew it; wait for the first copy, and not for long."""
        import subprocess

        is_first = not os.path.exists(self.path)
        self._start()
        if is_first and self._child is not None:
            try:
                self._child.wait(FIRST_WAIT_S)
            except subprocess.TimeoutExpired:
                pass

    def tend(self) -> None:
        """Called now and then: renew it when it is time. A catalog that fails is asked less often."""
        now = time.monotonic()
        if self._child is not None:
            code = self._child.poll()
            if code is None:
                return
            self._child = None
            self._failures = self._failures + 1 if code else 0
            wait = min(self._every_s * 2**self._failures, max(LONGEST_S, self._every_s))
            self._due = now + wait * random.uniform(0.9, 1.1)  # many hosts do not come at once
        elif now >= self._due:
            self._start()

    def _start(self) -> None:
        import subprocess

        try:
            child = subprocess.Popen(
                [sys.executable, "-m", "perdure.registry.http.mirror", self.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=None if self._failures == 0 else subprocess.DEVNULL,  # said once
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
                pipe.write(self._location.encode())  # not an argument: those are for everyone to read
        except OSError:
            pass  # it ended before it read; its exit code says so


def interval(environ: Mapping[str, str]) -> float:
    """Seconds between two looks at a catalog."""
    try:
        given = float(environ.get(EVERY, ""))
    except ValueError:
        return EVERY_S
    return given if SHORTEST_S <= given <= LONGEST_S else EVERY_S


def copy(location: str, path: str, environ: Mapping[str, str]) -> None:
    """Replace the copy in one step, if anything is different. Raises RegistryError.

    A host mounts only what is enabled: of a whole catalog nothing else is copied.
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
