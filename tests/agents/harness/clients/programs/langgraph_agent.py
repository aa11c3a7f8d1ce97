"""LangGraph's agent over langchain-openai, with chat completions or, with `responses` as second argument, Responses."""

import subprocess
import sys
import warnings

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

with warnings.catch_warnings():  # it has moved to a package that nothing else here needs
    warnings.simplefilter("ignore")
    from langgraph.prebuilt import create_react_agent


@tool
def sh(command: str) -> str:
    """Run a command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout


model = ChatOpenAI(model="any", use_responses_api="responses" in sys.argv)
result = create_react_agent(model, [sh]).invoke({"messages": [("user", sys.argv[1])]})
print(result["messages"][-1].text)
