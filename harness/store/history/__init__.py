"""History in the database: results, executions, bugs, workarounds, shards of a night."""
