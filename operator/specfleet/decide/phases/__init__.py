"""One file per phase: each looks at the observation and moves the turn on, or leaves it where it is."""
