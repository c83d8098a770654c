"""From a selection to cells, and from a cell to its row."""
