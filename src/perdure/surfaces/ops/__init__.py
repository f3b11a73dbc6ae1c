"""The host's own tools: `health`, `telemetry`, `mounts`, `tools`."""
