"""How one task runs on several engines: when each generation begins, and what of it is shown."""
