"""What runs inside a child that has cuTile: it captures launches and lowers them."""
