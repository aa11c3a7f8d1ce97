"""pyarrow, where it is installed."""

from typing import Any

from agar.errors import MissingExtraError, to_install


def arrow() -> Any:
    """The module `pyarrow`.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError(f"parquet files need pyarrow: {to_install('data')}") from error
    return pyarrow
