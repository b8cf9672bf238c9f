"""
Durable threads for LangGraph: a checkpointer over tables of our own on the same Postgres.

What it is made of: :mod:`~imem.checkpoints.langgraph.names` writes ids of any characters as Postgres can hold them,
:mod:`~imem.checkpoints.langgraph.operations` says which statements an operation takes and what their rows mean,
:mod:`~imem.checkpoints.langgraph.executors` runs statements, for threads and for tasks, and
:mod:`~imem.checkpoints.langgraph.saver` is what LangGraph sees. Nothing here may be imported by a program without
LangGraph.
"""
