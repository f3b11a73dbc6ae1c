"""Pure data: frames, protocol eras, replay classes, faults, tool contracts. Imports nothing of Perdure."""
