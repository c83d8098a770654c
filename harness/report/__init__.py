"""`triage report`: an issue that upstream can act on, and the gate that proves it."""
