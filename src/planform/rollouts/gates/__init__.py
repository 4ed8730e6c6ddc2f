"""Gates: what a Rollout measures after a wave before it goes on, one module for each way to measure.

`progress` is the pure part: it folds measurements into a verdict. `measuring` takes one measurement, `background` takes
them beside the loop of Rollouts, so that a slow answer never holds up an abort.
"""
