"""The rule table: what each vLLM version refuses or silently does wrong, checked before a GPU is spent."""

from specfleet.engine.rules.catalogue import RULES, check, check_proposer

__all__ = ["RULES", "check", "check_proposer"]
