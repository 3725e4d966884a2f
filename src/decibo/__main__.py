"""python -m decibo."""

from decibo.cli import main

main()
