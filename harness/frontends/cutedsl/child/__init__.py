"""What runs inside a child that has CuTe DSL: it captures launches and lowers them."""
