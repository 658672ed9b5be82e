"""`python -m mrc_host` is the `mrc` command."""

from mrc_host.cli import main

if __name__ == "__main__":
    main()
