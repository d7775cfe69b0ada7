"""Base classes of folders whose model is another package's."""
