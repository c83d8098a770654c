"""Pure logic: parsing, judging, searching. No I/O, no clock, no command line."""
