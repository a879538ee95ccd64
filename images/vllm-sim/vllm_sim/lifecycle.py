"""A server's life: listening, faults read each second, SIGTERM, the death of the engine."""

import asyncio
import gc
import http
import signal
import time

from vllm_sim import engine_log
from vllm_sim.assembly import Configuration, build_engine, build_identity, build_metrics
from vllm_sim.endpoints import Endpoints
from vllm_sim.exposition import Registry
from vllm_sim.faults import FaultSource
from vllm_sim.http_metrics import HttpMetrics
from vllm_sim.http_server import HttpServer, Request
from vllm_sim.process_metrics import process_families

FAULT_POLL_SECONDS = 1.0
STATUS_LOG_SECONDS = 10.0
UVICORN_PAUSE_SECONDS = 0.1
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 1.08 GiB is free. Process 1 has 78.01 GiB memory in use."
)


class Service:
    """One `vllm serve` process."""

    def __init__(
        self, configuration: Configuration, faults: FaultSource, started: float, keep_alive_seconds: float
    ) -> None:
        self._configuration = configuration
        self._faults = faults
        self._started = started
        self._keep_alive_seconds = keep_alive_seconds

    async def run(self) -> int:
        """Serve until SIGTERM or death; the exit code."""
        configuration = self._configuration
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._metrics = build_metrics(configuration)
        self._engine = build_engine(configuration, self._metrics, self._engine_died)
        self._engine.faults = self._faults.active
        self._http_metrics = HttpMetrics()
        registry = Registry()
        registry.families += process_families(self._started)
        # --disable-log-stats takes every vllm:* series away.
        registry.families += [] if configuration.arguments.disable_log_stats else self._metrics.families
        registry.families += self._http_metrics.families()
        self._endpoints = Endpoints(build_identity(configuration), self._engine, registry, self._faults)
        self._server = HttpServer(self._endpoints, self._answered, self._keep_alive_seconds)
        self._stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._terminate)
        arguments = configuration.arguments
        port = await self._server.listen(arguments.host, arguments.port)
        engine_log.info("entry.py:140", f"Starting vLLM server on http://{arguments.host or '0.0.0.0'}:{port}")  # noqa: S104
        engine_log.write("INFO:     Application startup complete.")
        tasks = [asyncio.create_task(self._poll_faults()), asyncio.create_task(self._log_status())]
        # What start-up made lives for ever: keep it out of every later collection, whose pauses would be seen as steps.
        gc.collect()
        gc.freeze()
        try:
            return await self._exit
        finally:
            for task in tasks:
                task.cancel()

    def _answered(self, request: Request, status: int, seconds: float, length: int) -> None:
        handler = self._endpoints.handler_name(request.path)
        self._http_metrics.answered(
            handler, request.method, status, seconds, int(request.headers.get("content-length", "0") or 0), length
        )
        if not self._configuration.arguments.disable_uvicorn_access_log:
            target = f"{request.path}?{request.query}" if request.query else request.path
            engine_log.write(f'INFO:     {request.client} - "{request.method} {target} HTTP/1.1" {_phrase(status)}')

    async def _poll_faults(self) -> None:
        while True:
            before = self._engine.faults.ids
            self._engine.apply_faults(self._faults.poll(time.time()))
            if self._engine.faults.ids != before:
                engine_log.info("faults.py:1", f"[sim] active faults: {', '.join(self._engine.faults.ids) or 'none'}")
            await asyncio.sleep(FAULT_POLL_SECONDS)

    async def _log_status(self) -> None:
        metrics = self._metrics
        prompt, made = 0.0, 0.0
        while True:
            await asyncio.sleep(STATUS_LOG_SECONDS)
            new_prompt, new_made = metrics.prompt_tokens.value, metrics.generation_tokens.value
            if (new_prompt, new_made) != (prompt, made):
                engine_log.info(
                    "loggers.py:335",
                    f"Engine 000: Avg prompt throughput: {(new_prompt - prompt) / STATUS_LOG_SECONDS:.1f} tokens/s, "
                    f"Avg generation throughput: {(new_made - made) / STATUS_LOG_SECONDS:.1f} tokens/s, "
                    f"Unfinished: {self._engine.unfinished} reqs",
                )
            prompt, made = new_prompt, new_made

    # ---------------------------------------------------------------------------------------------------------- SIGTERM

    def _terminate(self) -> None:
        """First SIGTERM starts the shutdown; later ones change nothing, as measured."""
        if self._stopping:
            return
        self._stopping = True
        timeout = self._configuration.arguments.shutdown_timeout
        mode = "drain" if timeout > 0 else "abort"
        engine_log.info("launcher.py:254", "[shutdown] API server: shutdown triggered")
        engine_log.info(
            "launcher.py:270", f"[shutdown] API server: stopping engine client mode={mode} timeout={timeout:g}s"
        )
        self._shutdown_line("core.py:1635", f"start mode={mode} timeout={timeout:g}s")
        # From here on new POSTs get 500, /health stays 200.
        self._endpoints.draining = True
        if timeout > 0:
            self._shutdown = asyncio.create_task(self._drain(timeout))
        else:
            self._shutdown = asyncio.create_task(self._abort())

    async def _abort(self) -> None:
        """No shutdown timeout: cut what is in flight."""
        self._shutdown_line("core.py:1644", f"aborting in-flight requests count={self._engine.unfinished}")
        if self._configuration.profile.sigterm_without_timeout == "hold":
            # The engine dies without a word; streams stall until their clients leave.
            self._engine.stop()
        else:
            self._engine.abort_all()
        await self._close()

    async def _drain(self, timeout: float) -> None:
        """In-flight requests finish, at most `timeout` seconds."""
        idle = asyncio.Event()
        self._engine.on_idle = idle.set
        count = self._engine.unfinished
        self._shutdown_line("core.py:1655", f"draining in-flight requests count={count} timeout={timeout:g}s")
        if self._engine.unfinished:
            try:
                await asyncio.wait_for(idle.wait(), timeout)
            except TimeoutError:
                self._engine.abort_all()
        self._shutdown_line("core.py:1666", "request processing complete; starting resource teardown")
        await asyncio.sleep(self._configuration.profile.teardown_seconds)
        await self._close()

    def _shutdown_line(self, place: str, message: str) -> None:
        engine_log.info(place, f"[shutdown] EngineCore: {message}", "EngineCore")

    async def _close(self) -> None:
        engine_log.info("launcher.py:279", "[shutdown] API server: engine client stopped")
        engine_log.info("launcher.py:282", "[shutdown] API server: signalling HTTP server shutdown")
        engine_log.info("launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")
        engine_log.write("INFO:     Shutting down")
        self._server.close()
        # As uvicorn does: idle connections get a moment to go before it speaks of waiting.
        await asyncio.sleep(UVICORN_PAUSE_SECONDS)
        if self._server.connections:
            engine_log.write("INFO:     Waiting for connections to close. (CTRL+C to force quit)")
            await self._server.wait_until_closed()
        engine_log.write("INFO:     Waiting for application shutdown.")
        engine_log.write("INFO:     Application shutdown complete.")
        self._finish(0)

    # ------------------------------------------------------------------------------------------------------------ death

    def _engine_died(self, exit_code: int, message: str) -> None:
        """The engine crashed: answers become errors, and soon the process leaves."""
        self._endpoints.dead = True
        engine_log.info("core.py:1500", "EngineCore encountered a fatal error.", "EngineCore", "ERROR")
        engine_log.crash(OUT_OF_MEMORY if message == "CUDA out of memory" else message)
        if exit_code == 128 + signal.SIGKILL:
            self._finish(exit_code)
        else:
            self._loop.call_later(self._configuration.profile.engine_dead_seconds, self._finish, exit_code)

    def _finish(self, code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(code)


def _phrase(status: int) -> str:
    return f"{status} {http.HTTPStatus(status).phrase}"
