"""The controllers of XRs: one for each XRD, with passes that choose, observe, run, plan, carry out and tell."""

from planform.controllers.composites.controllers import CompositeControllers
from planform.controllers.composites.live_compositions import LiveCompositions
from planform.controllers.composites.work import FinishedRun, Tools

__all__ = ["CompositeControllers", "FinishedRun", "LiveCompositions", "Tools"]
