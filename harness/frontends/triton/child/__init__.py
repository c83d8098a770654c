"""What runs inside a child that has Triton: it captures launches and compiles them."""
