"""How long `kubectl specfleet lint` takes."""
