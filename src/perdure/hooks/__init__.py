"""The hooks of client applications: their JSON as events of the time machine, and the entries that they need."""
