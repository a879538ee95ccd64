"""Expected speed-up of speculation from acceptance and step time: for planning and for priors, never for a verdict."""
