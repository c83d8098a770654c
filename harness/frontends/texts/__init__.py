"""What users and compilers write, as text: read, spelled and copied. No compiler is run."""
