"""What the training data looks like to the classifier: the reference that live traffic is held to
until enough is known of its own (`router.learn.drift`)."""

from collections.abc import Sequence

import msgspec

from router.classify.classify import classify, features_of_text
from router.classify.linear_model import LinearModel
from router.learn.drift import make_reference, values_of
from router.learn.learning import traits
from router.record.labelled import Record


def reference_file(records: Sequence[Record], model: LinearModel) -> bytes:
    """`reference.json` for the records that a model was fitted on; the same bytes for the same."""
    rows = []
    for record in records:
        seen = features_of_text(record.text)
        task_class = classify(seen, model=model)
        found = traits(seen.reading, task_class)
        rows.append(values_of(task_class.p_deep, seen.reading, found))
    reference = make_reference(rows, model.content_hash)
    return msgspec.json.format(msgspec.json.encode(reference), indent=1) + b"\n"
