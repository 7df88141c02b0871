"""Python processes as members of a group."""
