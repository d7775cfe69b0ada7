"""Adding a model: `cbs new-model` writes its files, `cbs check-model` judges them."""
