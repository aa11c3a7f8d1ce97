"""What environments cost in another gym: make, reset and step of one that does nothing, and of a game, in milliseconds.

Run by `gyms.py` in the gyms' own environment, which has no agar:

    python benchmarks/gyms_step.py gem|textarena|skyrl_gym [--episodes 2000]

What does nothing is written as its gym would have it, with the classes that its own environments stand on. The game is
the gym's own: guessing a number, reset under a seed and one guess; skyrl-gym has none of the kind.
"""

import argparse
import importlib.metadata
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

Make = Callable[[], Any]
Episode = Callable[[Any], object]
Game = Callable[[], object]


def gem() -> tuple[Make, Episode, Game | None]:
    """GEM: reset and step of five values, observations are text."""
    import gem

    class Nothing(gem.Env):  # type: ignore[misc]
        def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
            super().reset(seed)
            return "go", {}

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "ok", 0.0, False, False, {}

    def episode(env: Any) -> None:
        env.reset()
        env.step("hello")

    def game() -> None:
        guessing.reset(seed=1)
        guessing.step("\\boxed{5}")

    gem.register("bench:Nothing-v0", Nothing)
    guessing = gem.make("game:GuessTheNumber-v0-easy")
    return lambda: gem.make("bench:Nothing-v0"), episode, game


def textarena() -> tuple[Make, Episode, Game | None]:
    """TextArena: a state for one player keeps what was said; observations are asked for."""
    import textarena as ta

    class Nothing(ta.Env):  # type: ignore[misc]
        def reset(self, num_players: int, seed: int | None = None) -> None:
            self.state = ta.SinglePlayerState(num_players=num_players, seed=seed, max_turns=100)
            self.state.reset(game_state={}, player_prompt_function=lambda player_id, game_state: "go")

        def step(self, action: str) -> tuple[bool, dict[str, Any]]:
            kinds = ta.ObservationType
            self.state.add_observation(
                from_id=self.state.current_player_id, message=action, observation_type=kinds.PLAYER_ACTION
            )
            self.state.add_observation(message="ok", observation_type=kinds.GAME_MESSAGE)
            answer: tuple[bool, dict[str, Any]] = self.state.step()
            return answer

    def episode(env: Any) -> None:
        env.reset(num_players=1)
        env.get_observation()
        env.step(action="hello")
        env.get_observation()

    def game() -> None:
        guessing.reset(num_players=1, seed=1)
        guessing.get_observation()
        guessing.step(action="[5]")
        guessing.get_observation()

    ta.register("Nothing-v0", Nothing)
    guessing = ta.make("GuessTheNumber-v0-raw")
    return lambda: ta.make("Nothing-v0"), episode, game


def skyrl_gym() -> tuple[Make, Episode, Game | None]:
    """SkyRL's gym: `init` takes the prompt and gives it back; observations are messages."""
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

    class Nothing(BaseTextEnv):  # type: ignore[misc]
        def step(self, action: str) -> Any:
            said = [{"role": "user", "content": "ok"}]
            return BaseTextEnvStepOutput(observations=said, reward=0.0, done=False, metadata={})

    def episode(env: Any) -> None:
        env.init([{"role": "user", "content": "go"}])
        env.step("hello")

    skyrl_gym.register(id="nothing", entry_point=Nothing)
    return lambda: skyrl_gym.make("nothing"), episode, None


GYMS = {"gem": (gem, "gem-llm"), "textarena": (textarena, "textarena"), "skyrl_gym": (skyrl_gym, "skyrl-gym")}


def timed(work: Callable[[], object], episodes: int) -> float:
    """The median time of a call, in ms."""
    times = []
    for _ in range(episodes):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gym", choices=GYMS)
    parser.add_argument("--episodes", type=int, default=2000)
    options = parser.parse_args()
    build, package = GYMS[options.gym]
    make, episode, game = build()
    env = make()
    found = {
        "version": importlib.metadata.version(package),
        "make_ms": timed(make, options.episodes),
        "episode_ms": timed(lambda: episode(env), options.episodes),
    }
    if game is not None:
        found["game_ms"] = timed(game, options.episodes)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
