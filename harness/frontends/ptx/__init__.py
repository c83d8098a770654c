"""PTX as a front end: what is given is what the assembler gets."""
