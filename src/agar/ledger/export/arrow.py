"""pyarrow, where it is installed."""

from typing import Any

from agar.errors import MissingExtraError


def arrow() -> Any:
    """The module `pyarrow`.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("parquet files need pyarrow: pip install 'agar[data]'") from error
    return pyarrow
