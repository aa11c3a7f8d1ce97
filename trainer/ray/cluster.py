"""The Ray cluster that the ranks run in."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agar.errors import DeadlineError, MissingExtraError, TrainerError, to_install
from agar.trainer.config import ParallelConfig, PlacementConfig

logger = logging.getLogger(__name__)

_MARK = "AGAR_RAY_CLUSTER"
_WATCHDOG_S = 40.0
_KNOCK_S = 10.0
_STARTS = 3
_SPARE_CPUS = 16
"""Places in a local cluster for the ranks of other policies."""


class RayCluster:
    """Joins a cluster, or starts a small one on this machine that dies with this process.

    That holds for a kill as well: a watchdog ends whatever Ray leaves behind.

    A process has one connection to Ray. Whoever finds none makes it and closes it; everyone else borrows it, so
    trainers of several policies must close in the reverse order of opening, as an `AsyncExitStack` does.
    """

    def __init__(self, placement: PlacementConfig, parallel: ParallelConfig) -> None:
        self._placement = placement
        self._parallel = parallel
        self._owner: ThreadPoolExecutor | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    async def open(self) -> None:
        """Connect.

        Raises:
            MissingExtraError: ray is not installed.
            DeadlineError: a local cluster did not start, however often it was tried.
            TrainerError: there is no cluster at `placement.address`, or it is of another version.
        """
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError(f"the trainer needs ray: {to_install('trainer')}") from error
        if ray.is_initialized():
            return
        # Ray's processes are told to die with the *thread* that started them, so it must outlive this call.
        self._owner = ThreadPoolExecutor(1, "agar-ray")
        await asyncio.get_running_loop().run_in_executor(self._owner, self._init, ray)

    def _init(self, ray: Any) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray warns that it will stop hiding accelerators from actors that reserve none; ours ask for what they need.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._placement.address is not None:
            _join(ray, self._placement.address, quiet)
            return
        ranks = self._parallel.world_size
        # Ray counts CPUs, it does not bind them: ranks may outnumber cores, and trainers of other policies borrow this
        # cluster. Without prestart Ray does not fill all those places with idle processes.
        cpus = max(os.cpu_count() or 1, int(ranks * self._placement.cpus_per_rank + 0.999)) + _SPARE_CPUS
        for left in reversed(range(_STARTS)):
            mark = uuid.uuid4().hex
            self._watchdog = _start_watchdog(mark)
            os.environ[_MARK] = mark  # Ray's processes inherit it; nothing started later shall
            try:
                ray.init(
                    num_cpus=cpus,
                    include_dashboard=False,
                    object_store_memory=self._placement.object_store_mib * 2**20,
                    _node_ip_address="127.0.0.1",
                    _system_config={"prestart_worker_first_driver": False},
                    **quiet,
                )
                return
            except Exception as error:
                # Ray gives its own servers half a minute, which a busy machine may need; that cannot be set.
                if "timed out during startup" not in str(error):
                    raise
                logger.warning("Ray's servers did not start in time; %s", f"{left} more tries" if left else "giving up")
                ray.shutdown()
                self._end_watchdog()
            finally:
                del os.environ[_MARK]
        raise DeadlineError(
            f"Ray's servers did not start within half a minute, tried {_STARTS} times: free processors and memory, "
            "or set policies.NAME.placement.address to a cluster that runs"
        )

    async def place(self, deadline_s: float) -> Any:
        """Reserve one bundle per rank.

        Returns:
            The placement group.

        Raises:
            DeadlineError: the cluster does not have what the ranks reserve.
        """
        from ray.util.placement_group import placement_group, remove_placement_group

        bundle = {"CPU": self._placement.cpus_per_rank}
        if self._placement.gpus_per_rank:
            bundle["GPU"] = self._placement.gpus_per_rank
        group = placement_group([dict(bundle) for _ in range(self._parallel.world_size)], self._placement.strategy)
        try:
            async with asyncio.timeout(deadline_s):
                await group.ready()
        except TimeoutError:
            remove_placement_group(group)
            raise DeadlineError(
                f"the cluster did not offer {self._parallel.world_size} x {bundle} in {deadline_s:g} s: "
                "add nodes, or lower policies.NAME.parallel or policies.NAME.placement"
            ) from None
        return group

    async def close(self) -> None:
        """Disconnect, if this object connected; safe to call twice."""
        owner, self._owner = self._owner, None
        if owner is not None:
            import ray

            await asyncio.get_running_loop().run_in_executor(owner, ray.shutdown)
            owner.shutdown(wait=False)
        await asyncio.to_thread(self._end_watchdog)

    def _end_watchdog(self) -> None:
        """Let the watchdog end what is left, and wait for it; it has a deadline of its own."""
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is None or watchdog.stdin is None:
            return
        watchdog.stdin.close()
        try:
            watchdog.wait(_WATCHDOG_S)
        except subprocess.TimeoutExpired:
            logger.warning("the watchdog of Ray's processes did not end within %g s and is killed", _WATCHDOG_S)
            watchdog.kill()
            watchdog.wait()


def _join(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if host and port.isdigit():  # otherwise a name that Ray looks up, such as `auto`
            socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError, SystemExit) as error:
        # Where nobody answers, Ray waits for more than a minute and then ends the process, without an exception.
        raise TrainerError(
            f"no Ray cluster can be joined at {address}: {error}; start one there (`ray start --head`), or set "
            "policies.NAME.placement.address to one that runs"
        ) from error


def _start_watchdog(mark: str) -> subprocess.Popen[bytes]:
    """A process of its own session that ends what carries the mark once our end of its pipe is closed."""
    script = Path(__file__).with_name("watchdog.py")
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(script), _MARK, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        start_new_session=True,
    )
