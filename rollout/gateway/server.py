"""The gateway: opens recording sessions and serves them over HTTP."""

import functools
import secrets
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from agar.errors import ConfigError
from agar.ledger.config import RecordPolicy
from agar.ledger.families.base import Family
from agar.rollout.gateway.app import build_app
from agar.rollout.gateway.budget import Limits
from agar.rollout.gateway.config import GatewayConfig
from agar.rollout.gateway.in_flight import InFlight
from agar.rollout.gateway.session import GatewaySession
from agar.serving.deadlines import Deadlines
from agar.serving.listener import Listener
from agar.types import Engine, Metrics, Sampling

_KEY_BYTES = 32


class Gateway:
    """Sessions over engines; an async context manager that listens while it is open.

    Args:
        engines: what samples, by policy name.
        families: what renders and parses, by policy name.
        record: how sessions record; a session may have its own.
        config: where it listens and how long it waits.
    """

    def __init__(
        self,
        *,
        engines: Mapping[str, Engine],
        families: Mapping[str, Family],
        record: RecordPolicy | None = None,
        config: GatewayConfig | None = None,
    ) -> None:
        """See the class.

        Raises:
            ConfigError: engines and families name different policies.
        """
        if set(engines) != set(families):
            raise ConfigError(
                f"engines serve {sorted(engines)} but families {sorted(families)}: name the same policies"
            )
        self._engines, self._families = dict(engines), dict(families)
        self._record = record or RecordPolicy()
        self._config = config or GatewayConfig()
        self._sessions: dict[str, GatewaySession] = {}
        self._in_flight = InFlight("the gateway", self._config.calls_in_flight)
        self._deadlines = Deadlines(self._config.call_timeout_s)
        self._counts: Counter[str] = Counter()
        self._listener = Listener(
            build_app(
                self._sessions,
                body_bytes=self._config.body_bytes,
                body_timeout_s=self._config.body_timeout_s,
                ping_s=self._config.ping_s,
            ),
            name="gateway",
            host=self._config.host,
            port=self._config.port,
            shutdown_timeout_s=self._config.shutdown_timeout_s,
            head_timeout_s=self._config.head_timeout_s,
            write_timeout_s=self._config.write_timeout_s,
            on_unread=functools.partial(self._count, "unread_replies"),
        )

    @property
    def base_url(self) -> str:
        """The OpenAI base URL, ending in `/v1`."""
        return f"http://{self._listener.host}:{self._listener.port}/v1"

    @property
    def socket_path(self) -> Path | None:
        """The unix socket that serves the same; None while the gateway is not open."""
        return self._listener.socket_path

    @property
    def open_sessions(self) -> int:
        """Sessions not yet sealed."""
        return len(self._sessions)

    def open(
        self,
        *,
        policy: str,
        sampling: Sampling,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        context_tokens: int | None = None,
        wall_s: float | None = None,
        record: RecordPolicy | None = None,
    ) -> GatewaySession:
        """Open a session.

        Args:
            policy: the policy that answers.
            sampling: pinned for every call of the session.
            max_turns: model calls before calls are answered with a `length` stop.
            max_tokens: sampled tokens before calls are answered with a `length` stop.
            context_tokens: the longest prompt and reply; the gateway's setting if None.
            wall_s: seconds from now before calls are answered with a `length` stop, those under way included.
            record: how it records; the gateway's policy if None.

        Raises:
            ConfigError: no such policy, or a budget below 1 (a wall clock of 0 or less).
        """
        if policy not in self._engines:
            raise ConfigError(f"no policy {policy!r} here, only {sorted(self._engines)}")
        for name, value in (("max_turns", max_turns), ("max_tokens", max_tokens), ("context_tokens", context_tokens)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1 or None, got {value}")
        if wall_s is not None and wall_s <= 0:
            raise ConfigError(f"wall_s must be above 0 or None, got {wall_s}")
        session = GatewaySession(
            id=f"agar-{secrets.token_urlsafe(_KEY_BYTES)}",
            policy=policy,
            engine=self._engines[policy],
            family=self._families[policy],
            sampling=sampling,
            limits=Limits(
                turns=max_turns,
                tokens=max_tokens,
                context_tokens=context_tokens or self._config.context_tokens,
                wall_s=wall_s,
                call_timeout_s=self._config.call_timeout_s,
                calls_in_flight=self._config.session_calls_in_flight,
            ),
            record=record or self._record,
            base_url=self.base_url,
            socket_path=self._listener.socket_path,
            in_flight=self._in_flight,
            deadlines=self._deadlines,
            on_seal=self._forget,
        )
        self._sessions[session.id] = session
        return session

    def metrics(self) -> Metrics:
        """Totals since construction, as `gateway/<name>_count`."""
        calls = {"calls_in_flight": self._in_flight.now, "refused_calls": self._in_flight.refused}
        counts = {**self._counts, **calls}
        return {f"gateway/{name}_count": float(count) for name, count in sorted(counts.items())}

    def _count(self, what: str) -> None:
        self._counts[what] += 1

    def _forget(self, session: GatewaySession) -> None:
        self._sessions.pop(session.id, None)
        self._counts["sessions_abandoned" if session.abandoned else "sessions_sealed"] += 1

    async def __aenter__(self) -> Self:
        await self._listener.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for session in list(self._sessions.values()):
            session.seal()
        await self._listener.stop()
