"""The client's process is told what its owner was."""

from pathlib import Path

from e2e.engine_cluster.deployments import CLIENT, LONGEST_TOKENS
from e2e.road.traffic import read_arguments
from e2e.road.traffic_process import TrafficProcess


def test_every_option_reaches_the_client(tmp_path: Path) -> None:
    made = TrafficProcess("http://gateway", "a.example", "target", tmp_path / "log", 0.6, 1, more=CLIENT)
    aim, log = read_arguments(made.command()[3:])
    assert (aim.url, aim.host, aim.model, log) == ("http://gateway", "a.example", "target", tmp_path / "log")
    assert (aim.rate, aim.long_streams, aim.sampled_share, aim.longest_tokens) == (0.6, 1, 0.0, LONGEST_TOKENS)
    assert (aim.prompt_words, aim.answer_tokens) == ((4, 8, 12), (24, 48, 72))
