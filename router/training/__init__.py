"""Fits the classifier's weights from labelled texts: `python -m router.training` (`make train`).

Labelled records come in; the files in `router/classify/weights/` go out. Read `fit.py` first.
"""
