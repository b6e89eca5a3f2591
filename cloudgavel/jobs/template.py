"""The commented jobs.yaml that `cloudgavel init` writes."""

from typing import Final

JOBS_YAML_TEMPLATE: Final = """\
# What to train, by when, and for how much. Check it with `cloudgavel validate`.
version: 1
name: my-run                      # an unfinished run of this name is resumed
budget: 50                        # US dollars for the whole run; never exceeded
policy: min_cost                  # see `cloudgavel policies`
# max_usd_per_hour: 20            # highest spend rate, moves included
# round: 6m                       # time between decisions
# deadline_margin: 10%            # planned slack before every deadline
# max_spot_wait: 1h               # without a deadline: wait so long for spot that is refused

# Where to rent. Without `clouds` the run is a rehearsal on this machine and costs nothing.
# clouds:
#   aws: {regions: [us-east-1, us-west-2], max_instances: 20}
#   gcp: {project: my-project, regions: [us-central1]}
# store: s3://my-bucket/runs      # checkpoints and logs; this machine's disk when left out

# Laid under every job.
defaults:
  workdir: .
  checkpoint: {path: ckpt, every: auto}
  retries: 2                      # for failures; interruptions never count

jobs:
  - name: first
    # Run by /bin/sh. $CLOUDGAVEL_TOTAL_STEPS and $CLOUDGAVEL_CHECKPOINT_DIR are set for you.
    command: python train.py --steps $CLOUDGAVEL_TOTAL_STEPS
    steps: 100_000
    accelerators: {V100: 1, A100: [1, 8], tpu-v3-8: 1}    # any one of these
    throughput: {V100: 7.8, "A100:8": 120}                # steps/s; others are estimated
    # setup: pip install -r requirements.txt              # once per machine
    # env: {BATCH: 64}
    # progress: 'step ([0-9]+)'   # for scripts that do not import cloudgavel.training
    # memory: 12GiB               # needed of each accelerator
    deadline: 24h                 # or 2030-12-01T12:00:00Z
    # weight: 2                   # importance when not every promise can be kept
    # max_cost: 20

  # One job for each value, sweep-lr-0.1 and sweep-lr-0.01.
  # - name: sweep
  #   foreach: {lr: [0.1, 0.01]}
  #   command: python train.py --lr $lr
  #   steps: 20k
  #   accelerators: [T4, L4]
  #   after: [first]
"""
