"""The user's own settings file for one trial: it counts without being trusted, as a workspace's would not."""

from __future__ import annotations

from pathlib import Path


def user_settings(folder: Path, text: str) -> dict[str, str]:
    """Write it below `folder`; the variables under which Perdure finds it."""
    path = folder / "config" / "perdure" / "perdure.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return {"XDG_CONFIG_HOME": str(folder / "config")}
