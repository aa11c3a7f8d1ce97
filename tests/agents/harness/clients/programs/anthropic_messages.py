"""Anthropic's client, Messages; with `stream` as second argument, streamed."""

import subprocess
import sys

import anthropic

TOOL = {
    "name": "sh",
    "description": "Run a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def main() -> None:
    client = anthropic.Anthropic()
    messages = [{"role": "user", "content": sys.argv[1]}]
    while True:
        request = {"model": "any", "max_tokens": 2048, "messages": messages, "tools": [TOOL]}
        if "stream" in sys.argv:
            with client.messages.stream(**request) as stream:
                reply = stream.get_final_message()
        else:
            reply = client.messages.create(**request)
        messages.append({"role": "assistant", "content": reply.content})
        results = []
        for block in reply.content:
            if block.type == "tool_use":
                done = subprocess.run(block.input["command"], shell=True, capture_output=True, text=True)
                results.append({"type": "tool_result", "tool_use_id": block.id, "content": done.stdout})
        if not results:
            print(reply.content[0].text)
            return
        messages.append({"role": "user", "content": results})


main()
