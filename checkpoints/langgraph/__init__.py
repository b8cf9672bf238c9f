"""
Durable threads for LangGraph: a checkpointer over tables of our own on the same Postgres.

:mod:`~imem.checkpoints.langgraph.names` encodes ids of any characters for Postgres,
:mod:`~imem.checkpoints.langgraph.operations` maps operations to statements and their rows,
:mod:`~imem.checkpoints.langgraph.executors` runs statements, for threads and for tasks, and
:mod:`~imem.checkpoints.langgraph.saver` implements LangGraph's interface. Programs without LangGraph must not import
these; :mod:`~imem.checkpoints.langgraph.node_steps`, which nodes are made of, needs none of it.
"""
