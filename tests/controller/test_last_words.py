"""Which line of an engine's last 2 KiB a person reads in status, Event and alert."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specfleet.alerts.derive import alerts_for
from specfleet.alerts.events import build_event
from specfleet.api.conditions import ConditionType
from specfleet.api.status import Phase
from specfleet.controller.last_words import LINE_LIMIT, why_it_ended

from tests.decide.test_road import crash, promoted

TRACE = """\
  File "site-packages/vllm/engine/arg_utils.py", line 2099, in create_speculative_config
    return SpeculativeConfig(**self.speculative_config)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
PYDANTIC = "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
INPUT = "[type=value_error, input_value=ArgsKwargs((), {'hf_token': 'hf_abcdefgh12'}), input_type=ArgsKwargs]"
PAGE = "    For further information visit https://errors.pydantic.dev/2.14/v/value_error\n"
CORE = "(EngineCore pid=214) ERROR 11-29 14:02:11 [core.py:1510] "
SERVER = "(APIServer pid=1) "
POINTED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
POINTER = f"{SERVER}{POINTED}\n"
FURTHER_UP = "the cause stands further up in the log: kubectl logs llama-1 -c engine --previous"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"{TRACE}{PYDANTIC}  Value error, num_speculative_tokens was provided but without a model. {INPUT}\n{PAGE}",
         f"{PYDANTIC.strip()} Value error, num_speculative_tokens was provided but without a model."),
        (f"{TRACE}{PYDANTIC}num_speculative_tokens\n  Input should be greater than 0 [type=greater_than, "
         f"input_value=0, input_type=int]\n{PAGE}",
         f"{PYDANTIC.strip()} num_speculative_tokens Input should be greater than 0"),
        ("usage: vllm serve [model_tag] [options]\nvllm serve: error: argument -sc: Value {x cannot be converted.\n",
         "vllm serve: error: argument -sc: Value {x cannot be converted."),
        (f"{CORE}EngineCore failed to start.\n{CORE}Traceback (most recent call last):\n"
         f"{CORE}ValueError: No available memory for the cache blocks.\n{SERVER}Traceback (most recent call last):\n"
         f'{SERVER}  File "launch.py", line 3, in main\n{POINTER}',
         "ValueError: No available memory for the cache blocks."),
        (f'{SERVER}  File "launch.py", line 3, in main\n{POINTER}',
         f"{POINTED}; {FURTHER_UP}"),
        ("OSError: models/a does not exist\n\nThe above exception was the direct cause of the following exception:\n\n"
         "Traceback (most recent call last):\nRuntimeError: the model cannot be loaded\n",
         "OSError: models/a does not exist"),
        ("KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n"
         "Traceback (most recent call last):\nValueError: no architecture named a\n",
         "ValueError: no architecture named a"),
        ("Segmentation fault (core dumped)\n\n", "Segmentation fault (core dumped)"),
        ("an error was met\nbye\n", "an error was met"),
        ("\n \n", ""),
        ("", ""),
        ("OSError: 401 for https://user:pw@models.example/a?token=abc, Authorization: Bearer abc, hf_abcdefgh12345\n",
         "OSError: 401 for https://***@models.example/a?token=***, Authorization: Bearer ***, hf_***"),
    ],
    ids=[
        "a rule of the engine that the configuration breaks, without the page and without what was given",
        "the field that is out of range",
        "a flag that cannot be read",
        "the core's own exception, not the server's that points to it",
        "a pointer alone: where to look",
        "the cause, not what it caused",
        "what was raised while another was handled",
        "a line that is no exception",
        "a line that speaks of an error before one that does not",
        "blank lines",
        "nothing",
        "credentials are left out",
    ],
)  # fmt: skip
def test_the_line_that_says_why(said: str, shown: str) -> None:
    assert why_it_ended(said, "llama-1", "engine") == shown


@given(st.text(max_size=3000), st.booleans())
def test_whatever_an_engine_says_is_one_bounded_line(said: str, pointing: bool) -> None:
    shown = why_it_ended(said + (f"\n{POINTER}" if pointing else ""), "llama-1", "engine")
    assert len(shown) <= LINE_LIMIT
    assert len(shown.splitlines()) <= 1
    assert shown or not said.strip() or not said.isprintable() or "^^^" in said or "~~~" in said


def test_status_event_and_alert_carry_the_same_words() -> None:
    why = "last exit 1 (Error): ValueError: No available memory for the cache blocks."
    world = promoted()
    crash(world, world.drafted, failure=why)
    world.run_to(Phase.ROLLED_BACK)
    owner = world.deployment()
    decision = world.decisions("RollBack")[-1]
    assert why in build_event(owner, decision)["message"]
    assert why in world.condition(ConditionType.SPECULATION_ACTIVE).message
    assert [why in one.description for one in alerts_for(owner)] == [True]
