"""A node: one process per host that loads the models of a catalogue by demand, each in a worker of its own."""
