"""The whole road on a real cluster: traffic, installation, narration, checks and report (`make demo`)."""
