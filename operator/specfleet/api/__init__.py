"""The two kinds of specfleet.dev/v1alpha1 as pydantic models. Imports no I/O library."""
