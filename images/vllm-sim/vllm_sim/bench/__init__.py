"""`vllm bench serve`: the load generator, with the real one's flags, results and habits."""
