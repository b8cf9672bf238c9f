"""Conversations: threads of messages with bounded windows and summaries."""
