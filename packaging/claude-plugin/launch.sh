#!/bin/sh
# Starts Perdure with the given arguments: the installed program, else one that uv or pipx fetches.
for program in perdure "$HOME/.local/bin/perdure"; do
    command -v "$program" >/dev/null 2>&1 && exec "$program" "$@"
done
command -v uvx >/dev/null 2>&1 && exec uvx perdure "$@"
command -v pipx >/dev/null 2>&1 && exec pipx run perdure "$@"
echo "perdure is not installed: run 'uv tool install perdure' or 'pipx install perdure'" >&2
exit 127
