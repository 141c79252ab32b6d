"""Makes the bucket of the embedded stores: ``python -m rl_operator.bucket FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from rl_contracts.stores.objects import Objects
from rl_contracts.stores.settings import StoreSettings

PATIENCE_SECONDS = 300.0


def main() -> None:
    """Create the bucket that a mounted stores' Secret names, when it is not there yet."""
    settings = StoreSettings.from_folder(Path(sys.argv[1]))
    Objects(settings, patience_seconds=PATIENCE_SECONDS).make_bucket()


if __name__ == "__main__":
    main()
