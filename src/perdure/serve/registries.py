"""The registries behind the workspaces that are served: what they list, and with what their servers are started."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from perdure.host.launch import environment
from perdure.host.registry_mounts import RegistryMounts
from perdure.host.settings import Settings
from perdure.kernel.events import Event, SaveTools
from perdure.kernel.state import KnownTools
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import MountSpec
from perdure.protocol.pending_trust import UntrustedFile
from perdure.supervise.child import TAIL_BYTES, Child, Launch


class Registries:
    """One registry for each workspace, read when its first session comes."""

    def __init__(self) -> None:
        self._known: dict[str, RegistryMounts] = {}

    def open(self, workspace: str, settings: Settings, taken: Mapping[str, MountSpec]) -> None:
        found = RegistryMounts(settings, os.environ, frozenset(taken))
        found.specs()
        self._known[workspace] = found

    def current(self, workspace: str) -> dict[str, MountSpec]:
        found = self._known.get(workspace)
        return {**found.current, **found.own} if found is not None else {}

    def untrusted(self, workspace: str) -> tuple[UntrustedFile, ...]:
        found = self._known.get(workspace)
        return found.untrusted if found is not None else ()

    def faults(self, workspace: str) -> tuple[Fault, ...]:
        found = self._known.get(workspace)
        return found.faults if found is not None else ()

    def news(self) -> list[tuple[str, list[Event]]]:
        return [(workspace, events) for workspace, one in self._known.items() if (events := one.news())]

    def launch(self, spec: MountSpec, environ: Mapping[str, str]) -> Launch | Fault:
        if not spec.managed:
            return Launch(spec.argv, environment(spec, environ), spec.cwd)
        owner = self._owner(spec)
        if owner is None:
            return Fault("process", "invalid_entry", 0, "it is not in the registry any more")
        return owner.launch(spec, environ)

    def shown_words(self, spec: MountSpec, child: Child) -> str:
        """As `last_words`, and of a server that is in no registry too, which a client is not told."""
        from perdure.registry.redaction import scrub
        from perdure.risk.short_text import is_secret_name

        if spec.managed:
            return self.last_words(spec, child)
        if child.stderr >= 0:
            child.read_stderr()
        given = {**os.environ, **spec.env}
        secrets = [value for name, value in given.items() if is_secret_name(name)]
        secrets += [word.partition("=")[2] or word for word in _secret_words(spec.argv)]
        text = child.tail.decode("utf-8", "replace")
        if len(child.tail) >= TAIL_BYTES:
            text = text.partition("\n")[2]  # its first line may be half a secret
        return scrub(text, secrets).strip()

    def shown_command(self, spec: MountSpec) -> str:
        """What a server is started with, without secrets; references as they stand in the registry."""
        from perdure.host.workspace_trust import command_line, start_of
        from perdure.registry.redaction import mask_args

        if spec.argv:
            return command_line(mask_args(spec.argv))
        owner = self._owner(spec)
        entry = owner.entry(spec.name) if owner is not None else None
        return start_of(entry).shown if entry is not None else ""

    def last_words(self, spec: MountSpec, child: Child) -> str:
        """The end of what a process wrote to standard error, without the secrets it was started with."""
        if child.stderr >= 0:
            child.read_stderr()
        owner = self._owner(spec)
        return owner.scrub(spec, child.tail, os.environ) if owner is not None and child.tail else ""

    def explained(self, spec: MountSpec, fault: Fault, code: int) -> Fault:
        owner = self._owner(spec)
        return owner.explained(spec, fault, code) if owner is not None else fault

    def tools_of(self, workspace: str, specs: Mapping[str, MountSpec]) -> dict[str, KnownTools]:
        found = self._known.get(workspace)
        return found.tools_of(specs) if found is not None else {}

    def save_tools(self, workspace: str, effect: SaveTools) -> None:
        found = self._known.get(workspace)
        if found is not None:
            found.save_tools(effect.mount, effect.known, effect.held)

    def _owner(self, spec: MountSpec) -> RegistryMounts | None:
        return next((one for one in self._known.values() if one.current.get(spec.name) == spec), None)


def _secret_words(argv: Sequence[str]) -> list[str]:
    """Arguments that are not for everyone to read: `--token=T`, and what follows `--api-key`."""
    from perdure.registry.redaction import mask_args

    return [word for word, shown in zip(argv, mask_args(argv), strict=True) if word != shown]
