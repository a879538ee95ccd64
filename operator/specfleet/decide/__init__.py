"""The decision core: pure functions of an observation and a clock. No I/O, no globals."""
