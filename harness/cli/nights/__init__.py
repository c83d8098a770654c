"""Commands about many results: matrix, diff, history, bugs, site, export."""
