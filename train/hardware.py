"""What devices can do, as their makers say."""

from __future__ import annotations

import torch

# Dense 16-bit matrix products, in TFLOP/s, by a part of the name that the driver gives the device.
# Sources: the makers' data sheets. An MI250X shows each of its two dies as a device.
PEAK_TFLOPS = {
    "H200": 989.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "A100": 312.0,
    "L40S": 362.0,
    "V100": 125.0,
    "MI300X": 1307.0,
    "MI250X": 191.5,
}


def peak_tflops(told: float | None, device: torch.device, precision: str) -> float | None:
    """The most that one device can do at this precision; None if nobody knows."""
    if told is not None or device.type != "cuda" or precision == "fp32":
        return told
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAK_TFLOPS.items() if part in name), None)
