"""`vllm serve`: from the command line to an exit code."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vllm_sim import engine_log
from vllm_sim.arguments import ArgumentsError, parse_serve_arguments
from vllm_sim.assembly import check_configuration, system_fingerprint
from vllm_sim.faults import FaultSource, Identity
from vllm_sim.lifecycle import Service
from vllm_sim.process_metrics import process_start_time
from vllm_sim.profile import Profile, ProfileError, load_profile
from vllm_sim.speculative_config import ConfigError


def serve(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run the server until it ends. 0: after SIGTERM; 1: refused or crashed; 2: bad command line or profile."""
    try:
        profile = load_profile(environment)
        parsed = parse_serve_arguments(arguments, profile.block_size)
        if not parsed.api_key and environment.get("VLLM_API_KEY"):
            parsed = replace(parsed, api_key=(environment["VLLM_API_KEY"],))
    except (ArgumentsError, ProfileError) as error:
        print(error, file=sys.stderr)
        return 2
    engine_log.banner(parsed, profile.engine_version)
    try:
        configuration = check_configuration(parsed, profile)
    except ConfigError as error:
        time.sleep(profile.config_error_seconds)
        engine_log.crash(error.lines)
        return 1
    speculation = configuration.speculation
    identity = Identity(
        method=speculation.method if speculation else None,
        fingerprint=system_fingerprint(parsed, profile.engine_version),
        served_names=parsed.served_model_name,
        model=parsed.model,
        draft_model=speculation.model if speculation else None,
        started=process_start_time(),
    )
    faults = FaultSource(identity, environment)
    described = speculation.log_text() if speculation else "None"
    engine_log.engine_config(parsed, profile.engine_version, described, configuration.max_model_len)
    failure = _start_up(profile, faults)
    if failure is not None:
        engine_log.crash(failure[1])
        return failure[0]
    keep_alive = float(environment.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "5"))
    code = asyncio.run(Service(configuration, faults, identity.started, keep_alive).run())
    if code == 128 + signal.SIGKILL:
        # As the kernel's out-of-memory killer would do it.
        os.kill(os.getpid(), signal.SIGKILL)
    return code


def _start_up(profile: Profile, faults: FaultSource) -> tuple[int, str] | None:
    """Wait as long as loading a model takes. (exit code, message) when a fault makes it fail."""
    ends = time.monotonic() + profile.startup_seconds
    while time.monotonic() < ends:
        time.sleep(min(0.1, max(0.0, ends - time.monotonic())))
    active = faults.poll(time.time())
    if active.startup_failure is None:
        return None
    code, message = active.startup_failure
    return code, message
