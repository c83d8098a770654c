"""The command line: options, printing, progress, exit codes."""
