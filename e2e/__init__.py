"""End-to-end tests of specfleet and the cluster they run on."""
