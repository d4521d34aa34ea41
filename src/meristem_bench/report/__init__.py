"""HTML pages: what may grow in a model, and the results of runs. Drawing runs needs the extra ``report``."""
