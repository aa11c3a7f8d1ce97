"""EnginePool: engines that run, stay alive, and serve only published weights."""

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Self

import aiohttp

from agar.errors import AgarError, EngineError
from agar.rollout.engines.client import RouterClient
from agar.rollout.engines.config import EnginesConfig, PublishMode
from agar.rollout.engines.gate import Gate
from agar.rollout.engines.hashlm import vocab_size
from agar.rollout.engines.keeper import Keeper
from agar.rollout.engines.proof import Delivered
from agar.rollout.engines.receiver import WeightReceiver
from agar.rollout.engines.router import Router, make_router
from agar.rollout.engines.server import EngineState, ManagedEngine, check_installation
from agar.types import Metrics, Receipt, WeightUpdate

logger = logging.getLogger(__name__)

_ROUTER_BACKOFF_S = (0.5, 30.0)


class EnginePool:
    """Starts engines and a router, keeps them alive, and receives weights; an async context manager.

    An engine is in the router only while it serves the current weights. A dead one restarts in the background and
    rejoins once it proved that it holds them.

    Args:
        config: settings.
        model_dir: Hugging Face directory of the first weights; may be None for attached engines.
        run_dir: where logs go; a temporary directory, which goes with the pool, where None.
        version: policy version of the first weights.
        first_index: number of its first engine on this machine, where other pools have those before it.

    Attributes:
        counts: deaths, restarts, publishes and missed publishes, since construction.
        start_s: how long each engine took to start, by name.
    """

    def __init__(
        self,
        config: EnginesConfig,
        model_dir: Path | None = None,
        *,
        run_dir: Path | None = None,
        version: int = 0,
        first_index: int = 0,
    ) -> None:
        self.config, self.model_dir = config, model_dir
        self._temporary = tempfile.TemporaryDirectory(prefix="agar-engines-") if run_dir is None else None
        self.run_dir = Path(self._temporary.name) if self._temporary is not None else Path(run_dir or "")
        self.gate = Gate(version)
        self.counts: Counter[str] = Counter(engine_failures=0, engine_recoveries=0, router_deaths=0)
        self.start_s: dict[str, float] = {}
        self.engines: list[ManagedEngine] = []
        self._first_version, self._first_index = version, first_index
        self._receiver = WeightReceiver(self)
        self._session: aiohttp.ClientSession | None = None
        self._router: Router | None = None
        self._client: RouterClient | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------------------------------------ life

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException as error:
            await asyncio.shield(self.close())
            if isinstance(error, ExceptionGroup):
                raise error.exceptions[0] from error  # the first failure cancelled the rest
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.shield(self.close())

    async def _start(self) -> None:
        await check_installation(self.config)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3.0))
        self._router = make_router(self.config, self._session, run_dir=self.run_dir)
        urls: Iterable[str | None] = self.config.urls or [None] * self.config.count
        self.engines = [
            ManagedEngine(
                f"engine-{index}",
                config=self.config,
                session=self._session,
                model_dir=self.model_dir,
                run_dir=self.run_dir,
                index=self._first_index + index,
                url=url,
            )
            for index, url in enumerate(urls)
        ]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._router.start())
            for engine in self.engines:
                group.create_task(self._start_first(engine))
        config = self.config
        self._client = RouterClient(
            self._router.url,
            gate=self.gate,
            vocab_size=vocab_size(self.model_dir),
            call_timeout_s=config.call_timeout_s,
            attempt_timeout_s=config.attempt_timeout_s,
            gate_timeout_s=3 * config.publish_timeout_s,
            retries=config.retries,
        )
        await self._client.__aenter__()
        for engine in self.engines:
            await self.admit(engine)
        keepers = [Keeper(engine, self) for engine in self.engines]
        self._tasks = [asyncio.create_task(keeper.keep()) for keeper in keepers]
        self._tasks.append(asyncio.create_task(self._keep_router(self._router)))
        for task in self._tasks:
            task.add_done_callback(self._note_failure)

    async def _start_first(self, engine: ManagedEngine) -> None:
        self.start_s[engine.name] = await engine.start(version=self._first_version)

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.error("the engine pool's keeper failed", exc_info=task.exception())
            # For good: a publish brings back no keeper, and nobody watches that engine any more.
            self.gate.break_with(EngineError(f"the engine pool's keeper failed: {task.exception()!r}"), for_good=True)

    async def close(self) -> None:
        """End every process that the pool started, and its background work; idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.remove_done_callback(self._note_failure)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            await client.__aexit__()
        stops = [engine.stop() for engine in self.engines]
        if self._router is not None:
            stops.append(self._router.stop())
        results = await asyncio.gather(*stops, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        if self._temporary is not None:
            self._temporary.cleanup()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    # ----------------------------------------------------------------------------------------------- serving

    def client(self) -> RouterClient:
        """The `Engine` that calls go through; open while the pool is.

        Raises:
            EngineError: the pool is not open.
        """
        if self._client is None:
            raise EngineError("the engine pool is not open: use it inside `async with`")
        return self._client

    @property
    def version(self) -> int | None:
        """The policy version served."""
        return self.gate.version

    @property
    def current(self) -> Delivered | None:
        """The update that is served; None before the first publish."""
        return self._receiver.current

    @property
    def first_version(self) -> int:
        """The policy version of the weights that engines start with."""
        return self._first_version

    @property
    def weights_lock(self) -> asyncio.Lock:
        """Held while engines change weights: whoever brings one up to date must hold it."""
        return self._receiver.weights

    def pids(self) -> list[int]:
        """Every process of every engine that the pool started."""
        return [pid for engine in self.engines for pid in engine.pids()]

    def metrics(self) -> Metrics:
        """Engines by state, and totals since construction."""
        states = Counter(f"engines/{engine.state.value}_count" for engine in self.engines)
        totals = {f"engines/{name}_count": float(count) for name, count in self.counts.items()}
        return {**states, **totals, **(self._client.metrics() if self._client else {})}

    async def admit(self, engine: ManagedEngine) -> None:
        """Put an engine that holds the current weights into the router.

        Raises:
            EngineError: the router does not take it, or the pool is closed.
        """
        if self._router is None or self._client is None:
            raise EngineError(f"{engine.name} cannot serve: the engine pool is closed")
        await self._router.add(engine.url)
        self._client.url = self._router.url
        engine.state = EngineState.SERVING

    async def expel(self, engine: ManagedEngine, reason: str) -> None:
        """Take an engine out of the router; calls in flight on it fail or finish, then go elsewhere."""
        if engine.state is EngineState.SERVING:
            logger.warning("engine %s leaves the router: %s", engine.name, reason)
        engine.state = EngineState.OUT
        if self._router is None or self._client is None:
            return
        try:
            await self._router.remove(engine.url)
        except EngineError as error:
            logger.warning("engine %s could not be taken out of the router: %s", engine.name, error)
        self._client.url = self._router.url

    def lose(self, engine: ManagedEngine, reason: str) -> None:
        """Give an engine up; when it was the last one, every call fails with the reason."""
        engine.state = EngineState.LOST
        logger.error("engine %s is given up: %s", engine.name, reason)
        if all(other.state is EngineState.LOST for other in self.engines):
            error = EngineError(f"every engine is lost; the last one, {engine.name}: {reason}")
            self.gate.break_with(error, for_good=True)

    async def _keep_router(self, router: Router) -> None:
        while True:
            await router.ended()
            self.counts["router_deaths"] += 1
            logger.warning("the router ended and is started again")
            await self._restart(router)
            for engine in self.engines:
                if engine.state is EngineState.SERVING:
                    try:
                        await router.add(engine.url)
                    except EngineError:
                        engine.wanted.set()

    async def _restart(self, router: Router) -> None:
        pause_s = _ROUTER_BACKOFF_S[0]
        while True:
            try:
                await router.stop()  # one that started but does not answer would keep the port
                await router.start()
            except (AgarError, OSError) as error:
                logger.warning("router %s did not start, again in %.1f s: %s", self.config.router, pause_s, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _ROUTER_BACKOFF_S[1])
            else:
                return

    # -------------------------------------------------------------------------------------------- publishing

    def publishing(self, mode: PublishMode | None = None) -> AbstractAsyncContextManager[None]:
        """Hold model calls back: `finish` waits for those in flight, `interrupt` cuts them to go on afterwards.

        On exit calls go on, under the version that was received in between, if one was.

        Args:
            mode: None takes the settings' `on_publish`.

        Raises:
            DeadlineError: calls in flight did not end within `publish_timeout_s`.
        """
        return self._receiver.publishing(mode)

    async def drain(self) -> None:
        """Wait until no call is in flight; new ones are held back while it waits.

        Raises:
            DeadlineError: calls in flight did not end within `publish_timeout_s`.
        """
        async with self.publishing("finish"):
            pass

    async def receive(self, update: WeightUpdate) -> Receipt:
        """Bring the weights to every engine and prove it; calls are held back meanwhile.

        An engine that cannot prove them leaves the router and is brought back in the background.

        Raises:
            PublishError: no engine serves the new weights, or delivery could not be proven; every call fails from
                then on until a later update is delivered.
            DeadlineError: calls in flight did not end.
        """
        return await self._receiver.receive(update)
