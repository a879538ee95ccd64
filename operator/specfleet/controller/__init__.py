"""Kopf wiring, the keyed queue and the reconcile: observe, decide, apply."""
