"""smolagents: a tool-calling agent or, with `code` as second argument, one that writes Python."""

import os
import subprocess
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def sh(command: str) -> str:
    """Run a command.

    Args:
        command: what to run.
    """
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


model = OpenAIServerModel(model_id="any", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
kind = CodeAgent if "code" in sys.argv else ToolCallingAgent
print(kind(tools=[sh], model=model, verbosity_level=0, max_steps=5).run(sys.argv[1]))
