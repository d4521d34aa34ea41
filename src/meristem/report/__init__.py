"""Runs as pictures: figures and one page that needs nothing else. Drawing needs the extra ``report``."""
