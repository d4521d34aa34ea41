"""What the commands do. A module is imported when its command runs, so that ``--help`` needs no torch."""
