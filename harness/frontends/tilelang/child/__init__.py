"""What runs inside a child that has TileLang: it captures launches and lowers them."""
