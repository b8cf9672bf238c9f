-- Threads of LangGraph: schema langgraph.
CREATE SCHEMA langgraph;
