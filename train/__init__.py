"""Training: substrates, recipes on TRL, evaluation, the gate and the model registry."""
