"""From PTX text to steps: lines, blocks, operands, and the table of opcodes."""
