"""L2: the reward tells good from bad: gold earns the most, doing nothing the least, chance little."""

from agar.envs.checks.subject import Fault, Subject, always, gold, play, sampled
from agar.types import Turn

_TASKS = 6


async def gold_is_best(subject: Subject) -> str:
    """Gold turns earn more than any others that were tried."""
    tried = 0
    async with subject.new() as runner:
        for number, task in enumerate(subject.some(_TASKS)):
            best = (await play(runner, task, gold)).total
            for other in (always(Turn()), sampled(number)):
                earned = (await play(runner, task, other)).total
                tried += 1
                if earned > best:
                    raise Fault(
                        f"task {task.key!r}: gold earns {best:g}, other turns {earned:g}: mend gold() or the reward"
                    )
    return f"gold earns the most in {tried} comparisons"


async def nothing_is_worst(subject: Subject) -> str:
    """Saying nothing earns less than gold, and no more than anything else."""
    async with subject.new() as runner:
        for number, task in enumerate(subject.some(_TASKS)):
            nothing = (await play(runner, task, always(Turn()))).total
            best = (await play(runner, task, gold)).total
            if nothing >= best:
                raise Fault(
                    f"task {task.key!r}: saying nothing earns {nothing:g}, gold {best:g}: reward the solution only"
                )
            chance = (await play(runner, task, sampled(number))).total
            if chance < nothing:
                raise Fault(
                    f"task {task.key!r}: random turns earn {chance:g}, saying nothing {nothing:g}: "
                    "an agent would learn to say nothing"
                )
    return "saying nothing earns the least"


async def chance_earns_little(subject: Subject) -> str:
    """Random turns and one constant answer earn less than half of what gold does."""
    tasks = subject.some(20)
    async with subject.new() as runner:
        best = sum([(await play(runner, task, gold)).total for task in tasks]) / len(tasks)
        floor = sum([(await play(runner, task, always(Turn()))).total for task in tasks]) / len(tasks)
        means = {}
        for name in ("random turns", "a constant answer"):
            total = 0.0
            for number, task in enumerate(tasks):
                player = sampled(number) if name == "random turns" else always(Turn(text="42"))
                total += (await play(runner, task, player)).total
            means[name] = total / len(tasks)
    for name, mean in means.items():
        if mean - floor >= 0.5 * (best - floor):
            raise Fault(f"{name} earn(s) {mean:.2f} of {best:.2f}: widen the space of answers")
    return "; ".join(f"{name}: {mean:.2f}" for name, mean in means.items()) + f"; gold: {best:.2f}"
