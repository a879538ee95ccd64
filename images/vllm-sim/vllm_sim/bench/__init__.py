"""`vllm bench serve`: the load generator of the real image, its flags, behaviour and result keys."""
