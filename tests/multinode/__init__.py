"""The launchers of several nodes: rules in simulation, lines on wires, launchers in namespaces."""
