"""What `--help` of the commands shows."""

import shlex

import pytest
from specfleet.cli.main import COMMANDS, parser


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_ends_with_examples_that_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([command, "--help"])
    assert ended.value.code == 0
    _, _, examples = capsys.readouterr().out.partition("examples:\n")
    lines = [line.split(" | ")[-1].split(" > ")[0] for line in examples.splitlines() if line.strip()]
    assert lines
    for line in lines:
        words = shlex.split(line.removeprefix("  "))
        assert words[:3] == ["kubectl", "specfleet", command]
        assert parser().parse_args(words[2:]).command == command
