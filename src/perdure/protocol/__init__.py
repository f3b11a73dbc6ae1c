"""Pure data of the protocol: frames, eras, replay classes, faults, tool declarations, the error envelope, mount specs."""
