"""XRs: one controller for each XRD, whose reconciles choose, observe, run the pipeline, plan, carry out."""
