"""What simulated engines say: a request in, a whole answer out. Pure, and the same every time."""
