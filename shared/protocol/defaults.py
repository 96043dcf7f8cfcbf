"""Defaults of sampling fields that the client left unset: the model's first, then the dialect's."""

import msgspec

from shared.protocol.request import Sampling


def fill_in(sampling: Sampling, defaults: Sampling) -> Sampling:
    """Return ``sampling`` with unset fields filled from ``defaults``."""
    fields = {
        field: value
        for field in Sampling.__struct_fields__
        if getattr(sampling, field) is None and (value := getattr(defaults, field)) is not None
    }
    return msgspec.structs.replace(sampling, **fields)
