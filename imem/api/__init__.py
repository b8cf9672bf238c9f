"""REST: the operations of ``Memory`` under ``/v1``, for programs with a token and people with a session."""
