import agar


class Sort(agar.Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.rest = sorted(10 + self.np_random.choice(90, size=3, replace=False))
        return f"Sort: {self.np_random.permutation(self.rest)}", {}

    def gold(self):
        return str(self.rest[0])

    def step(self, action: agar.Turn):
        right = agar.parse_int(action.text) == self.rest.pop(0)
        return "Next?", right / 3, not (right and self.rest), False, {}


agar.register("Sort-v0", Sort, max_turns=3)
