"""`triage.db`: connections, tables, rows, and what is done about a damaged database."""
