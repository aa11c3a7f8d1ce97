"""Task sets from Hugging Face `datasets`: by name, from what `save_to_disk` wrote, or from a data set in memory."""

from pathlib import Path
from typing import Any

from agar.envs.tasks.columns import TaskColumns
from agar.errors import ConfigError, MissingExtraError, to_install
from agar.types import TaskRow


class HubTasks:
    """The rows of a `datasets.Dataset`."""

    def __init__(
        self, dataset: Any, columns: TaskColumns | None = None, *, name: str, split: str = "train", env: str = ""
    ) -> None:
        """Take the rows of `dataset`: anything with `__len__` whose rows are tables."""
        self._dataset, self._columns, self._name = dataset, columns or TaskColumns(), name
        self._split, self._env = split, env

    @classmethod
    def load(
        cls, name: str, columns: TaskColumns, *, config: str | None = None, part: str = "train", split: str, env: str
    ) -> "HubTasks":
        """Load `part` (upstream's split) of a data set by its name, or of a folder of files or of `save_to_disk`.

        Raises:
            ConfigError: it cannot be loaded.
            MissingExtraError: `datasets` is not installed.
        """
        try:
            import datasets
        except ImportError as error:
            raise MissingExtraError(f"Hugging Face data sets need datasets: {to_install('hub')}") from error
        folder = Path(name)
        try:
            if (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file():
                found = datasets.load_from_disk(name)
                dataset = found[part] if isinstance(found, datasets.DatasetDict) else found
            else:
                dataset = datasets.load_dataset(name, config, split=part)
        except Exception as error:  # whatever the network, the cache or a builder raises
            raise ConfigError(
                f"cannot load {part!r} of the data set {name!r}: {type(error).__name__}: {error}"
            ) from error
        return cls(dataset, columns, name=folder.name, split=split, env=env)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> TaskRow:
        place = range(len(self))[index]
        return self._columns.row(self._dataset[place], name=self._name, index=place, split=self._split, env=self._env)
