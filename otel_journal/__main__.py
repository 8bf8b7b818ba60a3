"""``python -m otel_journal``: the command line, where no script is installed."""

from .cli import main

if __name__ == "__main__":
    main()
