"""The errors of a registry, as one tree.

    RegistryError                                       exit   retryable
    ├── InvalidName        (ValueError)  a name that no registry may hold        2   no
    ├── InvalidEntry       (ValueError)  an entry that is not valid              2   no
    ├── UnknownBackend     (ValueError)  no backend for this location            2   no
    ├── InputRequired                    a value that only the user can give     2   no
    ├── NotInRegistry                    no such name                            1   no
    ├── NotInCatalog                     no such name, or version, there         1   no
    ├── Quarantined                      the entry is there and has a problem    1   no
    ├── Unreadable                       the file cannot be read as a registry   1   no
    ├── Unsupported                      this backend cannot do that             1   no
    ├── UnsetVariable                    a reference to a variable that is unset 1   no
    ├── CommandNotAllowed                the command is not in the allowed list  1   no
    ├── Untrusted                        a workspace's file, not trusted         1   no
    ├── AlreadyInstalled                 the name is taken                       3   no
    ├── ChangedMeanwhile                 another program kept changing the file  3   yes
    ├── RegistryUnavailable              unreachable, 5xx, a torn reply, a lock  4   yes
    ├── Forbidden                        the system does not permit it           4   no
    └── AuthRequired                     no credentials, or not the right ones   4   no

"Not there" and "not reachable" are different classes; `retryable` says whether a second try may succeed.
`entry` is the name of the entry, `hint` what the user can do. No message holds a credential.
"""

from __future__ import annotations

from typing import ClassVar


class RegistryError(Exception):
    """What failed, for which entry, and a hint."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    code: ClassVar[str] = "registry"

    def __init__(self, message: str, *, entry: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.entry = entry
        self.hint = hint

    def to_json(self) -> dict[str, str | bool]:
        """What a command prints with `--json`."""
        fields: dict[str, str | bool] = {
            "error": self.code,
            "message": self.message,
            "retryable": self.retryable,
        }
        if self.entry:
            fields["entry"] = self.entry
        if self.hint:
            fields["hint"] = self.hint
        return fields


class InvalidName(RegistryError, ValueError):
    exit_code = 2
    code = "invalid_name"


class InvalidEntry(RegistryError, ValueError):
    exit_code = 2
    code = "invalid_entry"


class UnknownBackend(RegistryError, ValueError):
    exit_code = 2
    code = "unknown_backend"


class InputRequired(RegistryError):
    exit_code = 2
    code = "input_required"


class NotInRegistry(RegistryError):
    code = "not_in_registry"


class NotInCatalog(RegistryError):
    code = "not_in_catalog"


class Quarantined(RegistryError):
    code = "quarantined"


class Unreadable(RegistryError):
    code = "unreadable"


class Unsupported(RegistryError):
    code = "unsupported"


class UnsetVariable(RegistryError):
    """A reference to a variable that is not set."""

    code = "unset_variable"

    def __init__(self, variable: str, *, entry: str = "", hint: str = "") -> None:
        owner = f" of {entry}" if entry else ""
        super().__init__(
            f"the variable {variable}{owner} is not set",
            entry=entry,
            hint=hint or f"set {variable} and try again",
        )
        self.variable = variable


class CommandNotAllowed(RegistryError):
    code = "command_not_allowed"


class Untrusted(RegistryError):
    code = "untrusted"


class AlreadyInstalled(RegistryError):
    exit_code = 3
    code = "already_installed"


class ChangedMeanwhile(RegistryError):
    exit_code = 3
    retryable = True
    code = "changed_meanwhile"


class RegistryUnavailable(RegistryError):
    exit_code = 4
    retryable = True
    code = "unavailable"


class Forbidden(RegistryError):
    exit_code = 4
    code = "forbidden"


class AuthRequired(RegistryError):
    exit_code = 4
    code = "auth_required"
