"""OpenVINO's names of devices."""


def device_kind(device: str) -> str:
    """Return the kind of a device, of which a host may have several: ``GPU`` of ``GPU.1``."""
    return device.partition(".")[0]
