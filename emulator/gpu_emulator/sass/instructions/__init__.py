"""What each opcode of SASS does: one module for each kind."""
