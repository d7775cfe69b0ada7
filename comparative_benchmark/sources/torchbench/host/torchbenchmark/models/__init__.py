"""Package of model folders; `loading.import_folder` sets its `__path__`."""
