"""Model implementations in TensorFlow: Keras layers.

Keras runs on one of several frameworks, chosen when it is first imported. Importing this package
chooses TensorFlow, and raises if another framework was chosen before, because weights would be
arrays of that framework.
"""

import os
import sys

_BACKEND = "tensorflow"

_chosen = os.environ.setdefault("KERAS_BACKEND", _BACKEND)
if "keras" in sys.modules:
    # The variable may have been set only after the import.
    _chosen = sys.modules["keras"].config.backend()
if _chosen != _BACKEND:
    raise ImportError(
        f"Keras uses the backend {_chosen}, but these models need {_BACKEND}; set "
        f"KERAS_BACKEND={_BACKEND} before Keras is imported, or leave it unset"
    )
