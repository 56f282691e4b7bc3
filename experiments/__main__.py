"""``python -m experiments NAME``, in the folder of the repository: run one experiment."""

from experiments.command import main

if __name__ == "__main__":
    main()
