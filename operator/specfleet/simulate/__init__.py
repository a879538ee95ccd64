"""Fleets in virtual time on the decision core that runs in production. No cluster, no clock, no network."""
