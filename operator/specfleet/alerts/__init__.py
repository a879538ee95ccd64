"""What the operator tells people and other programs: Events, alerts, its own metrics. Decides nothing."""
