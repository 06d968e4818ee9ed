"""`python -m continua` is the same as `continua`."""

from continua.cli import main

raise SystemExit(main())
