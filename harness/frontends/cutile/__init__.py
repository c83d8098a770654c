"""cuTile as a front end: kernels captured, lowered to Tile IR, which tileiras assembles."""
