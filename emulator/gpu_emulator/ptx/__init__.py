"""The PTX ISA: its text, its programs and its instructions."""
