"""Data for the recipes. Nothing here knows of growing: only torch and numpy are used."""
