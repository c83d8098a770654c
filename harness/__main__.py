"""`python -m harness`: the same as `triage`."""

from harness.cli.main import main

if __name__ == "__main__":
    main()
