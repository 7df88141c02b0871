"""What observers of a group show: views of its world and its log, for commands, metrics and pages."""
