"""The world outside: processes, files, packages, toolchains, and what runs inside children."""
