"""A registry on the network, for a host that speaks with nothing but pipes: copied to a file by a process of its own.

The host mounts what the copy says and goes on while it is renewed; a changed copy is a changed file to it. Only the
first time, when there is no copy yet, does it wait, and not for long. A catalog that cannot be reached leaves the
copy as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from perdure.storage.places import private_dir, write_private

FIRST_WAIT_S: Final = 5.0


def mirror_path(location: str) -> str:
    """Where the copy of a registry lies. Its name tells nothing of the URL, which may hold a password."""
    from hashlib import sha256

    return os.path.join(private_dir("cache"), f"registry-{sha256(location.encode()).hexdigest()[:32]}.json")


def mirrored(location: str, environ: Mapping[str, str]) -> str:
    """The file to mount from, which is being renewed."""
    import subprocess
    import threading

    path = mirror_path(location)
    is_first = not os.path.exists(path)
    child = subprocess.Popen(
        [sys.executable, "-m", "perdure.registry.mirroring", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=dict(environ),
        start_new_session=True,
    )
    assert child.stdin is not None
    with child.stdin as pipe:
        pipe.write(location.encode())  # not an argument: those are for everyone to read
    if is_first:
        try:
            child.wait(FIRST_WAIT_S)
        except subprocess.TimeoutExpired:
            pass
    threading.Thread(target=child.wait, daemon=True).start()
    return path


def copy(location: str, path: str, environ: Mapping[str, str]) -> None:
    """Replace the copy in one step, if anything is different. Raises RegistryError."""
    import msgspec

    from perdure.registry.entry_json import to_object
    from perdure.registry.opening import open_backend

    entries = open_backend(location, environ).load_all()
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
