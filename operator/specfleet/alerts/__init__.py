"""How people are told: Events, Alertmanager, a webhook, and the operator's own metrics."""
