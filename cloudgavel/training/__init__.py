"""What a training script imports: ``for step in training.steps(total, save=..., load=...)``.

Standard library only. Outside cloudgavel the same loop simply counts.
"""

from cloudgavel.messages.control import STOPPED_EXIT_CODE
from cloudgavel.training.loop import report, steps

__all__ = ["STOPPED_EXIT_CODE", "report", "steps"]
