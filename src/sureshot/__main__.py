"""``python -m sureshot``: the same as the ``sureshot`` script."""

from sureshot.cli import main

if __name__ == "__main__":
    main()
