"""`cbs new-*` creates models, backends, recipes and operators; `cbs check-model` checks models."""
