"""Tables and text that several commands print."""
