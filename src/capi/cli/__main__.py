"""``python -m capi.cli``."""

from capi.cli.app import main

main()
