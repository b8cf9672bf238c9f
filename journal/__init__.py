"""
The package on which every other package builds.

Settings, errors, deadlines, the clock, the statement loader, the Postgres pool with its migrations, and the journal
proper: events, record heads, histories, audit and the gateway through which every read and write passes.
"""
