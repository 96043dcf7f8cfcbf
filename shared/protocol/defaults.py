"""Defaults of sampling fields that the client left unset: the model's first, then the dialect's."""

from collections.abc import Collection

import msgspec

from shared.protocol.request import Sampling


def fill_in(sampling: Sampling, defaults: Sampling, model_fields: Collection[str] = ()) -> Sampling:
    """Return ``sampling`` with unset fields filled from ``defaults``, except ``model_fields``, set by the engine."""
    fields = {
        field: value
        for field in Sampling.__struct_fields__
        if field not in model_fields
        and getattr(sampling, field) is None
        and (value := getattr(defaults, field)) is not None
    }
    return msgspec.structs.replace(sampling, **fields)
