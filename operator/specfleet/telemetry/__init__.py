"""Reading the fleet's metrics: batched Prometheus queries, counter deltas, windows, typed answers."""
