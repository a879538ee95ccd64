"""What each vLLM version accepts and exposes: rules, argument building, metric names. Pure; imports no I/O library."""
