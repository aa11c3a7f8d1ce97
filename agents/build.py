"""From settings to an agent."""

from agar.agents.chat import ChatAgent
from agar.agents.config import ChatConfig, HarnessConfig
from agar.agents.harness.harness import Harness


def build_agent(config: ChatConfig | HarnessConfig) -> ChatAgent | Harness:
    """Make the agent that the settings describe.

    Raises:
        MissingExtraError: it calls over HTTP and the `openai` package is not installed.
    """
    if isinstance(config, HarnessConfig):
        return Harness(config)
    return ChatAgent(
        transport=config.transport,
        max_turns=config.max_turns,
        model=config.model,
        timeout_s=config.timeout_s,
        max_retries=config.max_retries,
    )
