"""`triage hunt`: programs are made, put to oracles, reduced and named by their cause."""
