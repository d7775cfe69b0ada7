"""`cbs new-*` writes models, backends, recipes and operators; `cbs check-model` judges models."""
