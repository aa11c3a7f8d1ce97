import agar


class Sort(agar.Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.rest = sorted(self.np_random.choice(10, size=5, replace=False))
        return f"Sort: {self.np_random.permutation(self.rest)}", {}

    def gold(self):
        return str(self.rest[0])

    def step(self, action: agar.Turn):
        right = agar.parse_int(action.text) == self.rest.pop(0)
        return "Next?", right / 5, not (right and self.rest), False, {}


agar.register("Sort-v0", Sort, max_turns=5)
