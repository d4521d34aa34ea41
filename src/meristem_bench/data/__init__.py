"""Data: readers that need torch and numpy alone, and Pillow where images are files."""
