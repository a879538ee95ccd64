import subprocess
from pathlib import Path

import pytest

from e2e.cluster.process import MARK, Daemons, alive, run, wait_for
from e2e.cluster.settings import ClusterError


@pytest.fixture
def daemons(tmp_path: Path):
    made = Daemons(tmp_path)
    yield made
    for name in made.names():
        made.stop(name)


def test_a_started_program_is_found_by_its_name_until_it_is_stopped(daemons: Daemons) -> None:
    pid = daemons.start("sleeper", ["sleep", "300"])
    assert daemons.pid("sleeper") == pid
    assert daemons.start("sleeper", ["sleep", "300"]) == pid
    daemons.stop("sleeper")
    assert daemons.pid("sleeper") is None
    assert not alive(pid)


def test_what_a_program_starts_itself_is_found_too_and_nobody_elses_process_is(daemons: Daemons) -> None:
    shell = daemons.start("shell", ["sh", "-c", "sleep 301 & wait"])
    stranger = subprocess.Popen(["sleep", "302"], env={MARK: "/another/run"})
    try:
        wait_for("the child is there", lambda: len(daemons.marked()) == 2, seconds=10, log=daemons.log("shell"))
        assert shell in daemons.marked()
        assert stranger.pid not in daemons.marked()
    finally:
        stranger.kill()
        stranger.wait()
        subprocess.run(["kill", *map(str, daemons.marked())], check=False)


def test_a_pid_file_of_an_earlier_boot_names_no_process_of_ours(daemons: Daemons) -> None:
    (daemons.directory / "pid").mkdir()
    (daemons.directory / "pid" / "kubelet").write_text("1")
    assert daemons.pid("kubelet") is None


def test_waiting_for_a_program_that_ended_says_which_log_to_read_and_what_it_says(daemons: Daemons) -> None:
    pid = daemons.start("broken", ["sh", "-c", "echo no such flag; exit 3"])
    with pytest.raises(ClusterError, match=r"(?s)the process ended; read .*log/broken\.log.*no such flag"):
        wait_for("broken is ready", lambda: False, seconds=30, log=daemons.log("broken"), pid=pid)


def test_a_command_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"ended with 2.*bad thing"):
        run(["sh", "-c", "echo bad thing >&2; exit 2"], log=tmp_path / "log")
    assert "bad thing" in (tmp_path / "log").read_text()
