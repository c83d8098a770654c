"""What each opcode does: one module a chapter of the PTX ISA manual."""
