"""From settings to an agent."""

from agar.agents.chat import ChatAgent
from agar.agents.config import AgentConfig


def build_agent(config: AgentConfig) -> ChatAgent:
    """Make the agent that the settings describe.

    Raises:
        MissingExtraError: it calls over HTTP and the `openai` package is not installed.
    """
    return ChatAgent(
        transport=config.transport,
        max_turns=config.max_turns,
        model=config.model,
        timeout_s=config.timeout_s,
        max_retries=config.max_retries,
    )
