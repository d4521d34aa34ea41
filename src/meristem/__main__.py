"""``python -m meristem``."""

from meristem_bench.cli import main

raise SystemExit(main())
