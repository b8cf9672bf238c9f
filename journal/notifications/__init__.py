"""Wake-ups of processes that wait for work, and of callers that wait for visibility in the graph."""
