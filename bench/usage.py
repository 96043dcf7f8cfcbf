"""What processes and the store have used: memory, CPU seconds, commands and bytes."""

import os
from pathlib import Path
from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int) -> int:
    """Bytes of a process's memory that are resident now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def store_counts(store: Any) -> dict[str, float]:
    """What the store has done since its start: CPU seconds, commands (those inside scripts too), bytes, publishes."""
    info = store.info("all")
    return {
        "cpu": info["used_cpu_user"] + info["used_cpu_sys"],
        "commands": info["total_commands_processed"],
        "bytes": info["total_net_input_bytes"] + info["total_net_output_bytes"],
        "publish": info.get("cmdstat_publish", {}).get("calls", 0),
    }
