"""OpenAI's client, Responses; with `stream` as second argument, streamed."""

import json
import subprocess
import sys

import openai

TOOL = {
    "type": "function",
    "name": "sh",
    "description": "Run a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}


def main() -> None:
    client = openai.OpenAI()
    history = [{"role": "user", "content": sys.argv[1]}]
    while True:
        if "stream" in sys.argv:
            with client.responses.stream(model="any", input=history, tools=[TOOL], store=False) as stream:
                reply = stream.get_final_response()
        else:
            reply = client.responses.create(model="any", input=history, tools=[TOOL], store=False)
        history += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in reply.output]
        calls = [item for item in reply.output if item.type == "function_call"]
        for call in calls:
            command = json.loads(call.arguments)["command"]
            done = subprocess.run(command, shell=True, capture_output=True, text=True)
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": done.stdout})
        if not calls:
            print(reply.output_text)
            return


main()
