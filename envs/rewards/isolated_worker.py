"""The process behind `agar.envs.rewards.isolated.isolated`: a pickled conversation in, its score out."""

import base64
import pickle
import resource
import sys
from importlib import import_module
from typing import Any

from agar.envs.rewards.answering import refuse, serve


def main(words: list[str]) -> None:
    """Grade until the owner is gone."""
    module, _, name = words[0].partition(":")
    memory_bytes = int(words[1]) << 20
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    try:
        score = getattr(import_module(module), name)
    except Exception as error:
        refuse(f"{words[0]} cannot be imported: {type(error).__name__}: {error}")
        return

    def grade(told: str) -> dict[str, Any]:
        try:
            return {"score": float(score(pickle.loads(base64.b64decode(told))))}
        except BaseException as error:
            return {"error": f"{type(error).__name__}: {error}"}

    serve(grade)


if __name__ == "__main__":
    main(sys.argv[1:])
