"""What `perdure serve` was told: options, then environment, then `[serve]` of the two settings files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.host.serve_options import ALGORITHMS, OAuth, OAuthFile, ServeFile, ServeLimits, Serving
from perdure.host.settings_file import FILE_NAME, SettingsError, read_file, user_file
from perdure.host.workspace_settings import read_workspace_settings

VARIABLES: Final = {
    "host": "PERDURE_HOST",
    "port": "PERDURE_PORT",
    "metrics": "PERDURE_METRICS",
    "certificate": "PERDURE_CERTIFICATE",
    "key": "PERDURE_KEY",
    "public_url": "PERDURE_PUBLIC_URL",
}
OAUTH_VARIABLES: Final = {
    "issuer": "PERDURE_OAUTH_ISSUER",
    "audience": "PERDURE_OAUTH_AUDIENCE",
    "scopes": "PERDURE_OAUTH_SCOPES",
    "jwks": "PERDURE_OAUTH_JWKS",
    "introspection": "PERDURE_OAUTH_INTROSPECTION",
    "client_id": "PERDURE_OAUTH_CLIENT_ID",
    "algorithms": "PERDURE_OAUTH_ALGORITHMS",
}
LISTS: Final = frozenset({"audience", "scopes", "algorithms"})


def load(given: Mapping[str, Any], environ: Mapping[str, str], workspace: str) -> Serving:
    """Settle every name. `given` holds the options as parsed, None where one was not given."""
    user_path = user_file(environ)
    user = read_file(user_path)
    ours = read_workspace_settings(os.path.join(workspace, FILE_NAME), user_path, user)
    files = [file.serve or ServeFile() for file in (ours.counting, user)]
    found: dict[str, Any] = {}
    for name, variable in VARIABLES.items():
        value = _first(given.get(name), environ.get(variable), files, name)
        if value is not None:
            found[name] = value
    for name in ("certificate", "key"):
        if name in found:
            found[name] = os.path.join(workspace, os.path.expanduser(found[name]))
    if isinstance(found.get("metrics"), str):
        found["metrics"] = found["metrics"].lower() in ("1", "true", "yes", "on")
    found["limits"] = _limits(files)
    found["oauth"] = _oauth(given, environ, [file.oauth or OAuthFile() for file in files])
    try:
        settled = msgspec.convert(found, type=Serving, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"serve: {error}") from None
    if (settled.certificate is None) != (settled.key is None):
        raise SettingsError("--certificate and --key belong together")
    return settled


def _first(option: Any, variable: str | None, files: list[Any], name: str) -> Any:
    if option is not None:
        return option
    if variable:
        return variable
    return next((value for file in files if (value := getattr(file, name)) is not None), None)


def _limits(files: list[ServeFile]) -> ServeLimits:
    merged: dict[str, float] = {}
    for file in reversed(files):
        merged.update(file.limits)
    try:
        return msgspec.convert(merged, type=ServeLimits, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"serve.limits: {error}") from None


def _oauth(given: Mapping[str, Any], environ: Mapping[str, str], files: list[OAuthFile]) -> OAuth | None:
    found: dict[str, Any] = {}
    for name, variable in OAUTH_VARIABLES.items():
        value = _first(given.get(f"oauth_{name}"), environ.get(variable), files, name)
        if value is not None:
            found[name.replace("_", "-")] = _words(value) if name in LISTS else value
    leeway = next((file.leeway for file in files if file.leeway is not None), None)
    if leeway is not None:
        found["leeway"] = leeway
    if not found:
        return None
    if "issuer" not in found:
        raise SettingsError("serve.oauth: the issuer is missing (--oauth-issuer)")
    try:
        made = msgspec.convert(found, type=OAuth)
    except msgspec.ValidationError as error:
        raise SettingsError(f"serve.oauth: {error}") from None
    unfit = [name for name in made.algorithms if name not in ALGORITHMS]
    if unfit or not made.algorithms:
        # `none` proves nothing, and a shared secret would let every server that checks tokens make them.
        raise SettingsError(
            f"serve.oauth.algorithms: {', '.join(unfit) or 'nothing'}: one of {', '.join(ALGORITHMS)}"
        )
    return made


def _words(value: list[str] | str) -> list[str]:
    return value.replace(",", " ").split() if isinstance(value, str) else value
