"""What agents publish and what they receive: routing, queues, pushing, pulling."""
