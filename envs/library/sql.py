"""Sql-v0: questions about a shop whose data can be asked in SQL, from one table to three."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agar.envs.base import StepResult
from agar.envs.library.drawn import DrawnTasks, pick
from agar.envs.library.guarded_sqlite import GuardedDatabase, shown
from agar.envs.spaces import Observation
from agar.envs.tool_env import ToolEnv
from agar.tool_servers.tools import tool
from agar.types import ToolCall, Turn

_NAMES = ("Ada", "Ben", "Chen", "Dora", "Emil", "Fatou", "Goran", "Hana", "Ines", "Jonas", "Kofi", "Lena")
_CITIES = ("Basel", "Delft", "Ghent", "Turku")
_PRODUCTS = ("lamp", "chair", "desk", "mug", "plate", "spoon", "pen", "ink", "paper")
_CATEGORIES = ("furniture", "kitchen", "office")
_MONTHS = tuple(f"2024-{month:02d}" for month in range(1, 7))
_SCHEMA = (
    "Tables: customers(id, name, city), products(id, name, category, price), "
    "orders(id, customer_id, product_id, quantity, month) with months like 2024-03."
)
_JOINED = "orders o JOIN customers c ON c.id = o.customer_id JOIN products p ON p.id = o.product_id"
_QUESTIONS = {
    "city": ("How many customers live in {city}?", "SELECT count(*) FROM customers WHERE city = '{city}'"),
    "orders": (
        "How many orders has {name} placed?",
        "SELECT count(*) FROM orders o JOIN customers c ON c.id = o.customer_id WHERE c.name = '{name}'",
    ),
    "sold": (
        "How many pieces of {product} were sold in {month}?",
        "SELECT coalesce(sum(o.quantity), 0) FROM orders o JOIN products p ON p.id = o.product_id "
        "WHERE p.name = '{product}' AND o.month = '{month}'",
    ),
    "revenue": (
        "What did customers from {city} pay for {category} in all?",
        "SELECT coalesce(sum(o.quantity * p.price), 0) FROM " + _JOINED + " "
        "WHERE c.city = '{city}' AND p.category = '{category}'",
    ),
    "best": (
        "Who paid the most in {month}? If several did, the first of them in the alphabet.",
        "SELECT c.name FROM " + _JOINED + " WHERE o.month = '{month}' "
        "GROUP BY c.id ORDER BY sum(o.quantity * p.price) DESC, c.name LIMIT 1",
    ),
    "never": (
        "How many customers have never bought {category}?",
        "SELECT count(*) FROM customers WHERE id NOT IN (SELECT o.customer_id FROM orders o "
        "JOIN products p ON p.id = o.product_id WHERE p.category = '{category}')",
    ),
}


class Sql(ToolEnv):
    """A question about a shop; reward 1 if the final text is the answer, and nothing but it."""

    shop: GuardedDatabase | None = None
    """The shop of the episode in play."""

    async def areset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Fill the shop and ask the question."""
        await super().areset(seed=seed, options=options)
        self.task = tasks.given_or_drawn(options, self.np_random)
        self.shop = database = GuardedDatabase(shop(int(self.task.payload["data"])))
        self.right = str(database.ask(self.task.payload["query"])[0][0])
        self._asked = False
        return f"{_SCHEMA} {self.task.prompt} Answer with the number or name alone.", {}

    async def arelease(self) -> None:
        """Close the shop. Idempotent."""
        await super().arelease()
        if self.shop is not None:
            self.shop.close()

    @tool
    def sql(self, query: str) -> str:
        """Run one SELECT statement of SQLite."""
        assert self.shop is not None
        return shown(self.shop.ask(query))

    async def astep(self, action: Turn) -> StepResult:
        """Ask the shop, or grade the answer."""
        self._asked = self._asked or bool(action.tool_calls)
        return await super().astep(action)

    async def answer(self, action: Turn) -> StepResult:
        """Grade the final text."""
        return "", float(action.text.strip().rstrip(".") == self.right), True, False, {}

    def gold(self) -> Turn:
        """Ask the right query, then say what it gave."""
        if self._asked:
            return Turn(text=self.right)
        return Turn(tool_calls=(ToolCall(id="call_0", name="sql", arguments={"query": self.task.payload["query"]}),))


def shop(seed: int) -> dict[str, tuple[str, list[tuple[object, ...]]]]:
    """The tables of a shop: twelve customers, nine products, sixty to a hundred orders."""
    rng = np.random.default_rng(seed)

    customers = [(index + 1, name, pick(rng, _CITIES)) for index, name in enumerate(_NAMES)]
    products = [
        (index + 1, name, _CATEGORIES[index // 3], int(rng.integers(1, 90))) for index, name in enumerate(_PRODUCTS)
    ]
    orders = [
        (
            index + 1,
            int(rng.integers(1, len(customers) + 1)),
            int(rng.integers(1, len(products) + 1)),
            int(rng.integers(1, 9)),
            pick(rng, _MONTHS),
        )
        for index in range(int(rng.integers(60, 101)))
    ]
    return {
        "customers": ("id INTEGER PRIMARY KEY, name TEXT, city TEXT", list(customers)),
        "products": ("id INTEGER PRIMARY KEY, name TEXT, category TEXT, price INTEGER", list(products)),
        "orders": (
            "id INTEGER PRIMARY KEY, customer_id INTEGER, product_id INTEGER, quantity INTEGER, month TEXT",
            list(orders),
        ),
    }


def draw(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A question: its text, the shop's seed, and the query that answers it."""
    kind = pick(rng, tuple(_QUESTIONS))
    words = {
        name: pick(rng, values)
        for name, values in (
            ("city", _CITIES),
            ("name", _NAMES),
            ("product", _PRODUCTS),
            ("category", _CATEGORIES),
            ("month", _MONTHS),
        )
    }
    question, query = (text.format(**words) for text in _QUESTIONS[kind])
    return question, {"data": int(rng.integers(2**31)), "kind": kind, "query": query}


tasks = DrawnTasks("Sql-v0", draw)
