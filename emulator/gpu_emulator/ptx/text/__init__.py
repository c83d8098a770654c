"""PTX as text: read, changed, printed. Pure."""
