"""What the institution knows about a subject, under one deadline: briefings and their rendering."""
