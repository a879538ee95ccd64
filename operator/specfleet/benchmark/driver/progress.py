"""How a Job says where it is."""


def say(text: str) -> None:
    """One progress line for a person; nothing parses it."""
    print(f"[specfleet] {text}", flush=True)
