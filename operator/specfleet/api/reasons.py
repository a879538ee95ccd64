"""Reasons of decisions, phases and conditions that more than one part of the operator acts on."""

ABORTED = "CommandAbort"
"""What a person's abort led to: they know, and do not want the next attempt to start by itself."""
