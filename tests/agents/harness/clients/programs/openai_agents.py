"""openai-agents, with Responses or, with `chat` as second argument, with chat completions."""

import subprocess
import sys

from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled


@function_tool
def sh(command: str) -> str:
    """Run a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


set_tracing_disabled(True)
if "chat" in sys.argv:
    set_default_openai_api("chat_completions")
print(Runner.run_sync(Agent(name="hunter", model="any", tools=[sh]), sys.argv[1]).final_output)
