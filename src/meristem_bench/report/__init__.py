"""Pages and pictures: what may grow in a model, and what came of a run. Drawing runs needs the extra ``report``."""
