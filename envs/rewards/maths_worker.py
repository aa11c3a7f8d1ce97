"""The process behind `agar.envs.rewards.maths.Verifier`: a pair of expressions in, true, false or null out."""

from agar.envs.rewards.answering import refuse, serve

MISSING = "missing"


def main() -> None:
    """Compare until the owner is gone."""
    try:
        from math_verify import parse, verify
    except ImportError:
        refuse(MISSING)
        return

    def compare(pair: list[str]) -> bool | None:
        said, right = pair
        try:
            # The owner keeps the time: no alarm signals in here.
            expressions = [parse(f"${text}$", parsing_timeout=None) for text in (right, said)]
            return all(map(bool, expressions)) and bool(verify(*expressions, timeout_seconds=None))
        except Exception:  # the owner counts it: whatever sympy made of it, it was not shown to be equal
            return None

    serve(compare)


if __name__ == "__main__":
    main()
