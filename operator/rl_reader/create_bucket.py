"""Creates the embedded stores' bucket: ``python -m rl_reader.create_bucket FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from rl_contracts.stores.clients.settings import StoreSettings
from rl_contracts.stores.objects import Objects

PATIENCE_SECONDS = 300.0


def main() -> None:
    """Create the bucket that a mounted stores' Secret names if it does not exist yet."""
    settings = StoreSettings.from_folder(Path(sys.argv[1]))
    Objects(settings, patience_seconds=PATIENCE_SECONDS).make_bucket()


if __name__ == "__main__":
    main()
