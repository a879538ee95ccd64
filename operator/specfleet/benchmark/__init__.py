"""The paired benchmark: its plan, the driver that runs inside the Job, and the reading of what the driver wrote."""
