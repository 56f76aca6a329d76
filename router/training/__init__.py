"""Fits the classifier's weights from labelled texts: `python -m router.training` (`make train`)."""
