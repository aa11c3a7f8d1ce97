"""OpenAI's client, chat completions; with `stream` as second argument, streamed."""

import json
import subprocess
import sys

import openai

TOOL = {
    "type": "function",
    "function": {
        "name": "sh",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def main() -> None:
    client = openai.OpenAI()
    messages = [{"role": "user", "content": sys.argv[1]}]
    while True:
        if "stream" in sys.argv:
            with client.chat.completions.stream(model="any", messages=messages, tools=[TOOL]) as stream:
                stream.until_done()
                message = stream.get_final_completion().choices[0].message
        else:
            reply = client.chat.completions.create(model="any", messages=messages, tools=[TOOL])
            message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        for call in message.tool_calls or ():
            command = json.loads(call.function.arguments)["command"]
            done = subprocess.run(command, shell=True, capture_output=True, text=True)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": done.stdout})
        if not message.tool_calls:
            print(message.content)
            return


main()
