"""Every question's query gives what plain Python finds in the same tables."""

import numpy as np
import pytest

from agar.envs.library.sql import Sql, draw, shop
from agar.types import TaskRow, ToolCall, Turn


def answered(kind, words, tables):
    """The answer, worked out without SQL."""
    customers = {row[0]: row for row in tables["customers"][1]}
    products = {row[0]: row for row in tables["products"][1]}
    orders = [(customers[row[1]], products[row[2]], row[3], row[4]) for row in tables["orders"][1]]
    match kind:
        case "city":
            return sum(city in words for _, _, city in customers.values())
        case "orders":
            return sum(customer[1] in words for customer, *_ in orders)
        case "sold":
            return sum(count for _, product, count, month in orders if product[1] in words and month in words)
        case "revenue":
            return sum(n * p[3] for c, p, n, _ in orders if c[2] in words and p[2] in words)
        case "best":
            paid = {}
            for customer, product, count, month in orders:
                if month in words:
                    paid[customer[1]] = paid.get(customer[1], 0) + count * product[3]
            return min(paid, key=lambda name: (-paid[name], name))
        case "never":
            bought = {customer[0] for customer, product, *_ in orders if product[2] in words}
            return len(customers) - len(bought)


async def test_the_gold_query_agrees_with_plain_python():
    kinds = set()
    env = Sql()
    for seed in range(80):
        question, payload = draw(np.random.default_rng(seed))
        kinds.add(payload["kind"])
        await env.areset(options={"task": TaskRow(key="q", prompt=question, payload=payload)})
        words = question.replace("?", " ").replace(".", " ").replace(",", " ").split()
        assert env.right == str(answered(payload["kind"], words, shop(payload["data"]))), question
    await env.arelease()
    assert len(kinds) == 6


@pytest.mark.parametrize(("text", "reward"), [("{}", 1.0), (" {}.\n", 1.0), ("It is {}", 0.0), ("", 0.0), ("{}0", 0.0)])
async def test_the_answer_counts_and_nothing_but_it(text, reward):
    env = Sql()
    await env.areset(seed=3)
    assert (await env.astep(Turn(text=text.format(env.right))))[1:3] == (reward, True)


async def test_a_wrong_query_is_answered_and_the_episode_goes_on():
    env = Sql()
    await env.areset(seed=3)
    calls = tuple(
        ToolCall(id=str(index), name="sql", arguments={"query": query})
        for index, query in enumerate(["SELECT count(*) FROM customers", "DROP TABLE orders", "SELECT * FROM pantry"])
    )
    messages, _, terminated, _, _ = await env.astep(Turn(tool_calls=calls))
    assert messages[0].text == "12"
    assert messages[1].text == "error: not authorized"
    assert messages[2].text == "error: no such table: pantry"
    assert not terminated
    await env.arelease()
