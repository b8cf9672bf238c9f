// doctor_server //
// What the server is, and its time. Columns: version: string, edition: string, now: datetime.
CALL dbms.components() YIELD name, versions, edition
WITH versions, edition, name WHERE name = 'Neo4j Kernel'
RETURN versions[0] AS version, edition, datetime.realtime() AS now

// doctor_timeouts //
// How often the server looks for transactions that have run out of time. Columns: value: string, such as 100ms.
SHOW SETTINGS 'db.transaction.monitor.check.interval' YIELD value
