"""``python -m capi``."""

from capi.cli.app import main

main()
