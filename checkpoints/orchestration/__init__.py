"""Starting and running the agents of an analysis."""
