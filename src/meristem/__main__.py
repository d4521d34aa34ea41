"""``python -m meristem``."""

from meristem.cli import main

raise SystemExit(main())
